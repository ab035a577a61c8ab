"""The evaluate stage: every policy rolls out the same held-out questions on the same index; then they are compared.

All are greedy but those that choose among several replies, which are drawn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from drag_ray import artifacts
from drag_ray.cluster import takes_gpus
from drag_ray.evaluate.comparison import Comparison, compare
from drag_ray.evaluate.config import EvaluateSections
from drag_ray.evaluate.console import format_console
from drag_ray.evaluate.context import build_context
from drag_ray.evaluate.examples import choose_examples
from drag_ray.evaluate.policies import BASE_NAME, choose_models, choose_subject
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.evaluate.question_weights import FoundWeight, apply_found_weights
from drag_ray.evaluate.questions import check_weighable, draw_held_out, draw_validation
from drag_ray.evaluate.report import write_report
from drag_ray.evaluate.results import compute_results
from drag_ray.evaluate.rollouts import prepare_baselines, roll_out
from drag_ray.inputs import Inputs
from drag_ray.search.searcher import Searcher
from drag_ray.stage_folder import StageFolder

REPORT_NAME = "report.html"


def run(sections: EvaluateSections, inputs: Inputs, folder: StageFolder) -> dict[str, Any]:
    """Roll out the held-out questions with every policy and write `comparison.json`, `results.jsonl` and `report.html`.

    The folder `chooser` holds the model that `best_of` chooses by.

    Returns:
        Counts: questions, policies, rollouts that are unfinished or set aside, and the first hits of each policy.

    Raises:
        DataError: there is no such question.
        ConfigError: a policy cannot be built.
        ArtifactError: an adapter is missing, or nothing is known of validation questions.
    """
    settings, finetune_dir, prompt_dir = sections.evaluate, inputs.find("finetune"), inputs.find("prompt")
    models = choose_models(sections, finetune_dir, prompt_dir, has_gpu=takes_gpus(sections.engine.device))
    questions = draw_held_out(settings, inputs, sections.seed)
    weighed = draw_validation(inputs) if check_weighable(settings, sections.agent) else []
    baselines = prepare_baselines(sections, inputs, folder)
    trajectories, left_out = roll_out(models, baselines, [*questions, *weighed], sections, inputs, folder)
    weights: dict[str, FoundWeight] = {}
    if weighed:
        index = Searcher(inputs["index"] / "search_index")
        trajectories, weights = apply_found_weights(trajectories, weighed, settings.question_weights, index)
    results = compute_results(trajectories, questions)
    # Before training the question is whether the model itself beats the first baseline.
    trained = choose_subject(models, list(baselines))
    baseline, subject = (BASE_NAME, trained) if trained else (next(iter(results)), BASE_NAME)
    comparison = compare(
        results, baseline, subject, split=settings.split, num_resamples=settings.num_resamples, seed=sections.seed
    )
    context = build_context(sections, inputs, len(questions), baselines, weights)
    print(format_console(comparison, context))
    _write_results(folder.path, results, comparison, weights)
    examples = choose_examples(trajectories, results, comparison.baseline, comparison.subject, settings.num_examples)
    write_report(folder.path / REPORT_NAME, comparison, examples, context)
    print(f"report: {(folder.path / REPORT_NAME).resolve()}")
    first_hits = {f"first_hits_{name}": sum(result.is_first_hit for result in rows) for name, rows in results.items()}
    return {"questions": len(questions), "policies": len(trajectories), **left_out, **first_hits}


def _write_results(
    stage_dir: Path,
    results: Mapping[str, Sequence[QuestionResult]],
    comparison: Comparison,
    weights: Mapping[str, FoundWeight],
) -> None:
    rows = [{"policy": name, **asdict(result)} for name, policy_results in results.items() for result in policy_results]
    artifacts.write_jsonl(stage_dir / "results.jsonl", rows)
    found = {policy: asdict(weight) for policy, weight in weights.items()}
    artifacts.write_json(stage_dir / "comparison.json", {**comparison.to_dict(), "question_weights": found})
