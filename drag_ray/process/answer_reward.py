"""The reward of OpenSearch-VL (https://github.com/shawn0728/OpenSearch-VL): format times (.8 accuracy + .2 quality of queries).

Where it departs from that code: a judge that fails says nothing, there it says 0; an answer may be right in part (.5); and a
rollout that loops, runs out of time or turns, or gives no answer is worth 0, there its well-formed steps earn it the share of
its queries.
"""

from collections.abc import Sequence
from dataclasses import dataclass

ACCURACY_WEIGHT, QUERY_WEIGHT = 0.8, 0.2


@dataclass(frozen=True, slots=True)
class Step:
    """One reply: whether its reasoning and its action were read from it, and whether the tool that it called failed."""

    is_well_formed: bool
    has_tool_error: bool = False


def compute_format_factor(steps: Sequence[Step], fatal_step: int | None = None) -> float:
    """The share of well-formed steps without an error of their tool, of those before the fatal one; 0 without any."""
    counted = steps if fatal_step is None else steps[:fatal_step]
    good = sum(step.is_well_formed and not step.has_tool_error for step in counted)
    return good / len(counted) if counted else 0.0


def compute_answer_reward(
    steps: Sequence[Step],
    *,
    has_answer: bool,
    accuracy: float | None,
    query_quality: float | None = None,
    fatal_step: int | None = None,
) -> float | None:
    """The reward of a rollout in 0..1; None where nobody could say whether its answer is right, which is not a wrong answer.

    Args:
        steps: its replies.
        has_answer: whether it came to one.
        accuracy: of the answer, in 0..1, by a measure or by a judge; None where the judge failed.
        query_quality: what a judge thinks of its queries, in 0..1; None where none was asked or it failed: accuracy is all.
        fatal_step: see `fatal.find_fatal_step`.
    """
    if not has_answer:
        return 0.0
    if accuracy is None:
        return None
    quality = accuracy if query_quality is None else ACCURACY_WEIGHT * accuracy + QUERY_WEIGHT * query_quality
    return compute_format_factor(steps, fatal_step) * quality
