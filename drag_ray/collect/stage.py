"""The collect stage: the training questions are rolled out, and their trajectories kept."""

from dataclasses import replace
from typing import Any

from drag_ray.baselines.baseline import Sources
from drag_ray.baselines.registry import BASELINES
from drag_ray.cluster.nodes import let_engines_rest
from drag_ray.collect.config import CollectSections
from drag_ray.corpus.questions import draw_questions, draw_split, select_questions
from drag_ray.rollout.options import build_options, with_degradation
from drag_ray.rollout.plan import build_plan
from drag_ray.rollout.runner import prepare_engines, run_plan
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs

_DRAWS_PER_PROPOSAL = 4
"""proposals for a question of each baseline that draws them (all but rm3); the others make one"""


def run(sections: CollectSections, inputs: Inputs, folder: StageFolder) -> dict[str, Any]:
    """Roll out the training questions. Going on after a kill keeps finished rollouts and runs the others.

    Returns:
        Counts: questions, those of `run_plan`, and what a question yields.

    Raises:
        DataError: there is no training question, or none is left of those that files include and exclude.
        BudgetError: what an endpoint's replies may cost is spent.
        TooManyFailuresError: more rollouts failed than `max_failure_rate` allows.
    """
    settings = sections.collect
    written_dir = inputs.find("questions")
    places = inputs["index"], folder.path, inputs.find("embed"), written_dir
    options = build_options(sections.agent, sections.writer, sections.rollout, *places)
    options = with_degradation(options, settings.degradation, "collect.degradation")
    prepare_engines(options, sections.rollout)  # which start while proposers are prepared
    known = draw_split(inputs["index"], "train", 0, sections.seed, written_dir=written_dir)
    chosen = select_questions(known, settings.include_ids, settings.exclude_ids)
    questions = draw_questions(chosen, settings.limit, sections.seed)
    sources = Sources(settings, inputs["index"], sections.seed, written_dir=written_dir)
    proposers = {name: BASELINES[name].prepare(sources) for name in settings.proposals}
    plan = build_plan(
        questions,
        settings.presets,
        settings.samples_per_question,
        sections.seed,
        settings.hinted_samples,
        len(settings.prompt_sets),
        {name: _DRAWS_PER_PROPOSAL if proposer.draws else 1 for name, proposer in proposers.items()},
    )
    options = replace(
        options,
        enough_successes=settings.enough_successes,
        prompt_sets=settings.prompt_sets,
        proposers=proposers,
        telemetry=sections.telemetry,
        stored=inputs.list_stored(),
    )
    counts = run_plan(plan, options, sections.rollout, "collecting")
    let_engines_rest()  # what comes next makes rows of the rollouts, and trains
    yields = {
        f"{name}_per_question": counts[name] / len(questions) for name in ("distinct_successful_queries", "preference_pairs")
    }
    return {"questions": len(questions), **counts, **yields}
