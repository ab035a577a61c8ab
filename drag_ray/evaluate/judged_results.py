"""The answers of an evaluation before its judge, and what comes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from drag_ray.agent.judge import AnswerCase
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.rollout.config import JudgeConfig
from drag_ray.rollout.judgements import (
    JUDGE_DIR_NAME,
    Judgements,
    fingerprint_judge,
    judge_cases,
    judge_on_cluster,
    read_judgements,
)
from drag_ray.types import Trajectory


@dataclass(frozen=True, slots=True)
class JudgedResults:
    """Results by policy, with the judge's scores where one was asked.

    Attributes:
        description: who has judged, and what that took; empty without a judge.
        counts: answers that were judged, and results without a verdict.
        cost: what the judge's replies have cost, in the currency of its prices.
    """

    results: Mapping[str, Sequence[QuestionResult]]
    description: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    cost: float = 0.0


def build_case(trajectory: Trajectory) -> AnswerCase | None:
    """The case to judge of a rollout; None where that is known without a judge, or by no one."""
    if trajectory.error:
        return None
    return AnswerCase.find(trajectory.question, trajectory.answers, trajectory.final_answer.text)


def list_cases(trajectories: Mapping[str, Sequence[Trajectory]]) -> list[AnswerCase]:
    """The cases to judge of the rollouts of all policies."""
    found = (build_case(rollout) for rollouts in trajectories.values() for rollout in rollouts)
    return [case for case in found if case]


def judge_answers(trajectories: Mapping[str, Sequence[Trajectory]], config: JudgeConfig, folder: Path) -> Judgements:
    """The judge's verdicts on the answers of all policies; `folder` and errors are those of `judge_cases`."""
    judge_cases(list_cases(trajectories), config, folder)
    return read_judgements(folder, fingerprint_judge(config))


def judge_results(
    results: Mapping[str, Sequence[QuestionResult]],
    trajectories: Mapping[str, Sequence[Trajectory]],
    config: JudgeConfig,
    stage_dir: Path,
    max_failure_rate: float,
) -> JudgedResults:
    """The results of a stage as its judge sees them; its judgements are kept in `judge/` of the stage's folder.

    Raises what `judge_cases` does.
    """
    cost = judge_on_cluster(list_cases(trajectories), config, stage_dir, max_failure_rate)
    judgements = read_judgements(stage_dir / JUDGE_DIR_NAME, fingerprint_judge(config))
    judged = apply_judgements(results, trajectories, judgements)
    num_unjudged = sum(row.answer.is_unjudged for rows in judged.values() for row in rows)
    counts = {"judged": len(judgements.by_case), "unjudged": num_unjudged}
    return JudgedResults(judged, judgements.describe(config), counts, cost)


def apply_judgements(
    results: Mapping[str, Sequence[QuestionResult]], trajectories: Mapping[str, Sequence[Trajectory]], judgements: Judgements
) -> dict[str, list[QuestionResult]]:
    """The results with what each answer is worth to the judge."""
    applied = {}
    for policy, rows in results.items():
        rollouts = {rollout.question_id: rollout for rollout in trajectories[policy]}
        applied[policy] = [_apply(row, rollouts.get(row.question_id), judgements) for row in rows]
    return applied


def _apply(result: QuestionResult, rollout: Trajectory | None, judgements: Judgements) -> QuestionResult:
    if result.answer.anls is None:
        return result
    case = build_case(rollout) if rollout else None
    if case is None:
        return replace(result, answer=replace(result.answer, semantic=float(result.answer.anls == 1)))
    score = judgements.find_score(case)
    return replace(result, answer=replace(result.answer, semantic=score, is_unjudged=score is None))
