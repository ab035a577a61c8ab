"""OpenSearch-VL's reward of rollouts that answer: format times (.8 accuracy + .2 quality of queries), for `process.reward`.

Where this departs from that code: a judge that fails says nothing, there it says 0; an answer may be right in part (.5); and a
rollout that loops, runs out of time or turns, or gives no answer is worth 0, there its well-formed steps earn it the share of
its queries.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from drag_ray.agent.tasks import ANSWERING
from drag_ray.types import ActionKind

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
        fatal_step: see `process.turns.find_fatal_step`.
    """
    if not has_answer:
        return 0.0
    if accuracy is None:
        return None
    quality = accuracy if query_quality is None else ACCURACY_WEIGHT * accuracy + QUERY_WEIGHT * query_quality
    return compute_format_factor(steps, fatal_step) * quality


def take_rewards(turns: pl.DataFrame) -> pl.DataFrame:
    """The turns with the column reward as OpenSearch-VL has it, for the task answer; those of other tasks stay as they are.

    The last reply earns that of the whole rollout, whose accuracy is the ANLS* of its answer or what the judge says of it;
    without a judge nobody judges its queries.
    """
    rewards = turns["reward"].to_list()
    chosen = turns.with_row_index("place").filter(pl.col("task").is_in(ANSWERING))
    for rollout in chosen.partition_by("trajectory_id", maintain_order=True):
        for place in rollout["place"]:
            rewards[place] = 0.0
        rewards[rollout["place"][-1]] = _reward_rollout(rollout)
    return turns.with_columns(pl.Series("reward", rewards, dtype=pl.Float64))


def _reward_rollout(turns: pl.DataFrame) -> float:
    actions, fatal_step = turns["action"].to_list(), turns["fatal_step"][0]
    steps = [
        Step(action != ActionKind.INVALID.value, has_error)
        for action, has_error in zip(actions, turns["has_error"].to_list(), strict=True)
    ]
    reward = compute_answer_reward(
        steps,
        has_answer=actions[-1] == ActionKind.ANSWER.value,
        accuracy=turns["answer_reward"][0],
        query_quality=turns["query_quality"][0],
        fatal_step=None if fatal_step is None else fatal_step - 1,
    )
    assert reward is not None, "a rollout that nobody could judge is left out before"
    return reward
