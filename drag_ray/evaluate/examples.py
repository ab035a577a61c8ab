"""First queries side by side: questions on which training helped, hurt or changed nothing."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.types import ActionKind, Trajectory


class Outcome(StrEnum):
    """How the subject's first search compares with the baseline's, by the rank of the evidence."""

    WIN = "win"
    LOSS = "loss"
    TIE = "tie"


@dataclass(frozen=True, slots=True)
class Example:
    """One question with the first query of both policies; a query is empty when there was no search."""

    question_id: str
    question: str
    outcome: Outcome
    baseline_query: str
    baseline_rank: int | None
    subject_query: str
    subject_rank: int | None


EXAMPLE_RULE = "Not picked by hand or by size: from each of wins, losses and ties, the questions whose id has the lowest SHA-256."


def choose_examples(
    trajectories: Mapping[str, Sequence[Trajectory]],
    results: Mapping[str, Sequence[QuestionResult]],
    baseline: str,
    subject: str,
    num_each: int = 5,
) -> list[Example]:
    """Up to `num_each` wins, losses and ties, by `EXAMPLE_RULE`; wins first, in the order of the rule."""
    queries = {policy: {t.question_id: _find_first_query(t) for t in trajectories[policy]} for policy in (baseline, subject)}
    texts = {t.question_id: t.question for policy in (baseline, subject) for t in trajectories[policy]}
    subject_results = {result.question_id: result for result in results[subject]}
    examples = []
    for before in sorted(results[baseline], key=lambda result: hashlib.sha256(result.question_id.encode()).digest()):
        after = subject_results[before.question_id]
        examples.append(
            Example(
                question_id=before.question_id,
                question=texts.get(before.question_id, before.question_id),
                outcome=_compare_ranks(before.reciprocal_rank, after.reciprocal_rank),
                baseline_query=queries[baseline].get(before.question_id, ""),
                baseline_rank=before.first_search_rank,
                subject_query=queries[subject].get(before.question_id, ""),
                subject_rank=after.first_search_rank,
            )
        )
    return [example for outcome in Outcome for example in [e for e in examples if e.outcome is outcome][:num_each]]


def _find_first_query(trajectory: Trajectory) -> str:
    return next((turn.query for turn in trajectory.turns if turn.action is ActionKind.SEARCH), "")


def _compare_ranks(before: float, after: float) -> Outcome:
    if before == after:
        return Outcome.TIE
    return Outcome.WIN if after > before else Outcome.LOSS
