"""The evaluate stage: every policy rolls out the same held-out questions, greedily, on the same index; then they are compared."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from drag_ray.agent.retrieval import is_of_trained_model
from drag_ray.agent.tasks import SEARCHING
from drag_ray.baselines.baseline import Baseline, TermBaseline
from drag_ray.baselines.dense import Dense, Hybrid
from drag_ray.baselines.feature_model import FeatureModel, write_features
from drag_ray.baselines.features import Features
from drag_ray.baselines.question import RawQuestion
from drag_ray.baselines.rerank import Rerank
from drag_ray.cluster.nodes import takes_gpus
from drag_ray.corpus.questions import draw_questions
from drag_ray.errors import ArtifactError, ConfigError, DamageError, DataError
from drag_ray.evaluate.asked_questions import draw_held_out, draw_validation, draw_weighed
from drag_ray.evaluate.comparison import Comparison, compare
from drag_ray.evaluate.config import TEST, EvaluateSections
from drag_ray.evaluate.deployment import Latency
from drag_ray.evaluate.evaluation_folder import COMPARISON_NAME, QUESTIONS_NAME, REPORT_NAME, write_comparison, write_rollouts
from drag_ray.evaluate.judged_results import JudgedResults, judge_results
from drag_ray.evaluate.policies.policy import BASE_NAME, ModelPolicy, choose_models, choose_subject, find_prices
from drag_ray.evaluate.policies.reranked_policies import (
    AskedQuestion,
    measure_latency,
    put_pages_in_order,
    rank_by_start,
    read_pages,
)
from drag_ray.evaluate.policies.retriever_rescoring import (
    FoundWeight,
    SearchAsAsked,
    add_variants,
    apply_found_weights,
    search_by_both,
)
from drag_ray.evaluate.policies.reuse import ROLLOUTS_DIR_NAME
from drag_ray.evaluate.policies.rollouts import roll_out, search_questions
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.evaluate.report.context import build_context
from drag_ray.evaluate.report.parts import build_parts, format_console
from drag_ray.evaluate.results import compute_results
from drag_ray.rollout.folder import IMAGES_DIR_NAME
from drag_ray.search.config import Factors, RetrievalName
from drag_ray.search.searcher import Searcher
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage.artifacts import MANIFEST_NAME, read_manifest
from drag_ray.transcripts.thumbnails import ThumbnailStore
from drag_ray.types import Question, Trajectory

_logger = logging.getLogger(__name__)

MANY_EXPOSURES = 3
"""After so many evaluations of the same questions choices are likely to have been made by them."""
_NUM_LEARNED_BY = 500
"""validation questions that are enough for two factors; a model reads the pages of each"""
_UNJUDGED_SHARE = 0.5
"""of a language model that was trained to read, where nothing says what it counts: after 90 questions it gained so; a small
encoder, which has learned nothing by then, would mislead (docs/train/rankers.md)"""
_EVALUATION_DEPTH = 5
"""Folders between a run and the manifest of an evaluation that was set aside: rounds/2/evaluate/_previous/NAME."""


def run(sections: EvaluateSections, inputs: Inputs, folder: StageFolder) -> dict[str, Any]:
    """Roll out the held-out questions with every policy and write what `outcome` names.

    Returns:
        Counts: questions, policies, rollouts that are unfinished or set aside, what endpoints cost, answers that were judged and
        results without a verdict, and the first hits, or right answers, of each policy.

    Raises:
        DataError: there is no such question.
        BudgetError: what an endpoint's replies may cost is spent.
        TooManyFailuresError: more rollouts, or requests to the judge, failed than `max_failure_rate` allows.
        ConfigError: a policy cannot be built.
        ArtifactError: an adapter is missing, or nothing is known of validation questions.
    """
    settings, finetune_dir = sections.evaluate, inputs.find("finetune")
    models = choose_models(sections, finetune_dir, has_gpu=takes_gpus(sections.engine.device))
    questions = draw_held_out(settings, inputs, sections.seed, sections.agent.task)
    weighed = draw_weighed(sections, inputs)
    rolled_out = roll_out(models, [*questions, *weighed], sections, inputs, folder)
    trajectories = rolled_out.trajectories
    baselines = share_features(rolled_out.baselines, sections, inputs, folder.path.resolve())
    weights: dict[str, FoundWeight] = {}
    index = Searcher(inputs["index"] / "search_index")
    if weighed:
        trajectories, weights = apply_found_weights(trajectories, weighed, settings.question_weights, index)
    if sections.agent.task in SEARCHING:
        names = [model.name for model in models]
        chosen = choose_retrievers(baselines, sections.agent.retrieval)
        trajectories = _rescore_with_retrievers(trajectories, names, chosen, index.index_dir.resolve(), folder.path.resolve())
    judged = JudgedResults(compute_results(trajectories, questions))
    if settings.judge.enabled:
        rate = sections.rollout.max_failure_rate
        judged = judge_results(judged.results, trajectories, settings.judge, folder.path, rate)
    results, cost = judged.results, rolled_out.summed.get("cost", 0) + judged.cost
    retrievers = find_trained_retrievers(baselines, index.record.fingerprint)
    latencies = {
        name: measure_latency(baseline, index.index_dir, questions)
        for name, baseline in baselines.items()
        if isinstance(baseline, RawQuestion) and (isinstance(baseline, Rerank) or name in retrievers)
    }
    reranker, depth = baselines.get(Rerank.name), sections.agent.depth
    start_ranks = rank_by_start(reranker, index.index_dir, questions, depth) if isinstance(reranker, Rerank) else {}
    comparison = _compare(results, models, choose_subject(models, finetune_dir), sections, retrievers, latencies, start_ranks)
    num_exposures = _warn_of_exposures(settings.split, folder, questions)
    context = build_context(sections, inputs, len(questions), baselines, weights, judged.description, num_exposures)
    _logger.info(format_console(build_parts(comparison, context)))
    write_rollouts(folder.path, questions, trajectories)
    thumbnails = ThumbnailStore(inputs["index"], sorted(folder.path.glob(f"{ROLLOUTS_DIR_NAME}/*/{IMAGES_DIR_NAME}")))
    write_comparison(folder.path, comparison, results, trajectories, context, thumbnails)
    _logger.info(f"report: {(folder.path / REPORT_NAME).resolve()}")
    return {
        "questions": len(questions),
        "policies": len(trajectories),
        **rolled_out.summed,
        **judged.counts,
        **({"cost": cost} if cost else {}),
        **_count(comparison, results),
    }


def share_features(
    baselines: Mapping[str, Baseline], sections: EvaluateSections, inputs: Inputs, stage_dir: Path
) -> Mapping[str, Baseline]:
    """The baselines, of which a reranker has the features beside its model's scores; these are left in a file for endpoints."""
    features, reranker = baselines.get(Features.name), baselines.get(Rerank.name)
    if not isinstance(features, Features) or not features.model.weights:
        return baselines
    model = features.model
    if isinstance(reranker, Rerank):
        if reranker.options.weight is None:
            model = replace(model, with_model=_learn_factors(reranker, model, sections, inputs, stage_dir))
        baselines = {**baselines, Rerank.name: replace(reranker, features=model)}
    write_features(stage_dir, model)
    return baselines


def _learn_factors(
    reranker: Rerank, model: FeatureModel, sections: EvaluateSections, inputs: Inputs, stage_dir: Path
) -> Factors | float | None:
    """The factors of a reranker's model and of features, by validation questions, or the model's share where these are too few;
    None where they are asked themselves."""
    from drag_ray.baselines.feature_training import FEATURES_ALONE, fit_factors
    from drag_ray.baselines.page_features import FeatureScorer

    if sections.evaluate.split != TEST:
        return None
    index_dir = inputs["index"]
    unjudged = _UNJUDGED_SHARE if _has_learned_to_read(reranker, index_dir) else None
    try:
        questions = draw_questions(draw_validation(inputs), _NUM_LEARNED_BY, sections.seed)
    except (ArtifactError, ConfigError, DataError) as error:
        counts = "half" if unjudged else "alone"
        _logger.warning(
            f"rerank: counts {counts}, for what it counts beside `features` is learned on validation questions. {error}"
        )
        return unjudged
    rollouts = search_questions(Rerank.name, reranker, questions, sections, index_dir)
    asked = [AskedQuestion(rollout.question, (rollout,)) for rollout in rollouts]
    search_dir = (index_dir / "search_index").resolve()
    found = read_pages(asked, SearchAsAsked(reranker, search_dir, reranker.options.depth), reranker, stage_dir)
    score = FeatureScorer(model, Searcher(search_dir))
    judged = [
        (question, hits, score(question.question, hits), [read.scores[hit.page] for hit in hits])
        for question, read in zip(questions, found, strict=True)
        for hits in read.hits
        if hits
    ]
    if factors := fit_factors(judged):
        _logger.info(f"rerank: by {len(judged):,} validation questions {factors}")
        return factors
    _logger.warning(
        f"rerank: it counts {'half' if unjudged else 'nothing'}, since too few of {len(judged):,} validation questions have "
        "their evidence among the pages that it reads, to learn what it counts beside `features`. Keep more of them "
        "(format.validation_fraction), have it read more pages (evaluate.rerank.depth), or set evaluate.rerank.weight."
    )
    return unjudged or FEATURES_ALONE


def _has_learned_to_read(reranker: Rerank, index_dir: Path) -> bool:
    """True for a language model that was trained to put pages of this index in order."""
    from drag_ray.engine.encoders.reranker_files import describe_other_index, find_files

    files = find_files(reranker.options)
    return files.is_causal and not describe_other_index(files, index_dir / "search_index")


def _warn_of_exposures(split: str, folder: StageFolder, questions: Sequence[Question]) -> int:
    """The number of earlier evaluations of these test questions in this run, with a warning from `MANY_EXPOSURES` times on."""
    if split != TEST:
        return 0
    num_exposures = count_exposures(folder.path, folder.identity.stage, [question.question for question in questions])
    if num_exposures >= MANY_EXPOSURES:
        _logger.warning(
            f"{folder.path}: {num_exposures} evaluations of this run asked these test questions before. Choices made on them "
            "bias these results upwards. Choose on evaluate.split 'validation', and report on questions that were set aside."
        )
    return num_exposures


def choose_retrievers(baselines: Mapping[str, Baseline], retrieval: RetrievalName) -> dict[str, Baseline]:
    """The baselines with which policies' replies are searched for again: without hybrid for an agent that searches by vectors."""
    return {name: baseline for name, baseline in baselines.items() if retrieval == "bm25" or name != Hybrid.name}


def find_trained_retrievers(baselines: Mapping[str, Baseline], index_fingerprint: str) -> list[str]:
    """The baselines that search an index by vectors of a model that was trained."""
    by_vectors = {name: baseline.vectors_dir for name, baseline in baselines.items() if isinstance(baseline, Dense)}
    return [name for name, folder in by_vectors.items() if folder and is_of_trained_model(folder, index_fingerprint)]


def _rescore_with_retrievers(
    trajectories: dict[str, list[Trajectory]],
    policies: Sequence[str],
    baselines: Mapping[str, Baseline],
    index_dir: Path,
    stage_dir: Path,
) -> dict[str, list[Trajectory]]:
    """With what the policies find where a baseline searches or orders in another way: by vectors on the CPUs, while a reranker
    is loaded and reads on the GPUs."""
    hybrid, reranker = baselines.get(Hybrid.name), baselines.get(Rerank.name)
    found: dict[str, list[Trajectory]] = {}
    with ThreadPoolExecutor(1) as beside:
        by_both = None
        if isinstance(hybrid, Hybrid):
            weighting = [name for name, baseline in baselines.items() if isinstance(baseline, TermBaseline)]
            by_both = beside.submit(search_by_both, trajectories, policies, weighting, hybrid, index_dir)
        if isinstance(reranker, Rerank):
            read = partial(read_pages, reranker=reranker, stage_dir=stage_dir)
            found |= put_pages_in_order(trajectories, policies, reranker, index_dir, read)
        if by_both:
            found |= by_both.result()
    return add_variants(trajectories, found)


def _compare(
    results: Mapping[str, Sequence[QuestionResult]],
    models: Sequence[ModelPolicy],
    trained: str,
    sections: EvaluateSections,
    retrievers: Collection[str],
    latencies: Mapping[str, Latency],
    start_ranks: Mapping[str, int | None],
) -> Comparison:
    """Before training the question is whether the model itself beats the first baseline, after it whether it was made better."""
    settings = sections.evaluate
    baseline, subject = (BASE_NAME, trained) if trained else (next(iter(results)), BASE_NAME)
    return compare(
        results,
        baseline,
        subject,
        split=settings.split,
        trained=[model.name for model in models if model.name != BASE_NAME],
        retrievers=retrievers,
        latencies=latencies,
        start_ranks=start_ranks,
        prices=find_prices(settings, models),
        seed=sections.seed,
    )


def _count(comparison: Comparison, results: Mapping[str, Sequence[QuestionResult]]) -> dict[str, int]:
    """The questions of each policy that its task counts."""
    criterion = comparison.criterion
    counted = f"{criterion.counted}s".replace(" ", "_")
    return {f"{counted}_{name}": sum(map(criterion.is_counted, rows)) for name, rows in results.items()}


def count_exposures(stage_dir: Path, address: str, questions: Collection[str]) -> int:
    """The finished evaluations of a run, those in `_previous` too, that asked any of these as test questions."""
    own, asked = stage_dir.resolve(), set(questions)
    earlier = (folder for folder in _list_evaluations(own.parents[address.count("/")]) if folder != own)
    return sum(not asked.isdisjoint(_read_test_questions(folder)) for folder in earlier)


def _list_evaluations(run_dir: Path) -> Iterator[Path]:
    for depth in range(1, _EVALUATION_DEPTH + 1):
        for path in run_dir.glob("/".join(["*"] * depth + [COMPARISON_NAME])):
            if (path.parent / MANIFEST_NAME).is_file():
                yield path.parent


def _read_test_questions(folder: Path) -> list[str]:
    """The texts of what was asked; none where it was no test, or cannot be read any more."""
    import pyarrow.parquet as pq

    try:
        manifest = read_manifest(folder)
        if manifest is None or manifest.origin["config"]["evaluate"]["split"] != TEST:
            return []
        return pq.read_table(folder / QUESTIONS_NAME, columns=["question"])["question"].to_pylist()
    except (DamageError, KeyError, OSError):
        return []
