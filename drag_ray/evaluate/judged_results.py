"""The answers of an evaluation before its judge, and what comes of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from drag_ray.agent.judge import AnswerCase
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.rollout.judge_config import JudgeConfig
from drag_ray.rollout.judgements import Judgements, fingerprint_judge, judge_cases, read_judgements
from drag_ray.types import Trajectory


def build_case(trajectory: Trajectory) -> AnswerCase | None:
    """What there is to judge of a rollout; None where that is known without a judge, or by no one."""
    if trajectory.error:
        return None
    return AnswerCase.find(trajectory.question, trajectory.answers, trajectory.final_answer)


def list_cases(trajectories: Mapping[str, Sequence[Trajectory]]) -> list[AnswerCase]:
    """What there is to judge of the rollouts of all policies."""
    found = (build_case(rollout) for rollouts in trajectories.values() for rollout in rollouts)
    return [case for case in found if case]


def judge_answers(
    trajectories: Mapping[str, Sequence[Trajectory]],
    config: JudgeConfig,
    folder: Path,
    earlier: Iterable[Path] = (),
    max_failure_rate: float = 0.2,
) -> Judgements:
    """What a judge says of the answers of all policies; arguments and errors are those of `judge_cases`."""
    judge_cases(list_cases(trajectories), config, folder, earlier, max_failure_rate)
    return read_judgements(folder, fingerprint_judge(config))


def apply_judgements(
    results: Mapping[str, Sequence[QuestionResult]],
    trajectories: Mapping[str, Sequence[Trajectory]],
    judgements: Judgements,
) -> dict[str, list[QuestionResult]]:
    """The results with what each answer is worth to the judge."""
    applied = {}
    for policy, rows in results.items():
        rollouts = {rollout.question_id: rollout for rollout in trajectories[policy]}
        applied[policy] = [_apply(row, rollouts.get(row.question_id), judgements) for row in rows]
    return applied


def _apply(result: QuestionResult, rollout: Trajectory | None, judgements: Judgements) -> QuestionResult:
    if result.anls is None:
        return result
    case = build_case(rollout) if rollout else None
    if case is None:
        return replace(result, semantic=float(result.anls == 1))
    score = judgements.find_score(case)
    return replace(result, semantic=score, is_unjudged=score is None)
