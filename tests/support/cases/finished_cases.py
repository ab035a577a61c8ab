"""Evaluations that have finished, in folders, shared by tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from evaluation_cases import CONTEXT, Ranks, build_questions, build_rollouts

from drag_ray.evaluate.comparison import compare
from drag_ray.evaluate.effort import NO_PRICES, Prices
from drag_ray.evaluate.evaluation_folder import write_comparison, write_rollouts
from drag_ray.evaluate.judged_results import judge_answers
from drag_ray.evaluate.results import compute_results
from drag_ray.rollout.config import JudgeConfig
from drag_ray.rollout.judgements import JUDGE_DIR_NAME
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity
from drag_ray.transcripts.thumbnails import ThumbnailStore
from drag_ray.types import Question, Trajectory


def write_evaluation(path: Path, ranks: Ranks, questions: Sequence[Question] = (), prices: Prices = NO_PRICES) -> Path:
    """A finished evaluation of rollouts with the evidence at these ranks."""
    questions = questions or build_questions(len(next(iter(ranks.values()))))
    asked = {question.id for question in questions}
    rollouts = {policy: [t for t in some if t.question_id in asked] for policy, some in build_rollouts(ranks).items()}
    return finish_evaluation(path, rollouts, questions, prices=prices)


def finish_evaluation(
    path: Path,
    rollouts: Mapping[str, Sequence[Trajectory]],
    questions: Sequence[Question],
    judge: JudgeConfig | None = None,
    prices: Prices = NO_PRICES,
    spent: Mapping[str, float] | None = None,
) -> Path:
    """A finished evaluation of these rollouts, with the first policy as its baseline and the last as its subject."""
    results = compute_results(rollouts, questions)
    comparison = compare(results, next(iter(rollouts)), num_resamples=200, prices=prices)
    with StageFolder(path, Identity("evaluate", {}, {})) as folder:
        if judge:
            judge_answers(rollouts, judge, path / JUDGE_DIR_NAME)
        write_rollouts(path, questions, rollouts)
        write_comparison(path, comparison, results, rollouts, CONTEXT, ThumbnailStore(None))
        folder.finish({}, spent=dict(spent or {}))
    return path
