"""OpenSearch-VL's reward of rollouts that answer: format times (.8 accuracy + .2 quality of queries), for `process.reward`.

Where this departs from that code: a judge that fails says nothing, there it says 0; an answer may be right in part (.5); and a
rollout that loops, runs out of time, turns or tokens, or gives no answer is worth 0, there its well-formed steps earn it the
share of its queries.
"""

from collections.abc import Sequence

import polars as pl

from drag_ray.agent.tasks import ANSWERING
from drag_ray.types import ActionKind

ACCURACY_WEIGHT, QUERY_WEIGHT = 0.8, 0.2


def compute_format_factor(are_good: Sequence[bool], fatal_step: int | None = None) -> float:
    """The share of good replies of those before the fatal one; 0 without any."""
    counted = are_good[:fatal_step]
    return sum(counted) / len(counted) if counted else 0.0


def compute_answer_reward(
    are_good: Sequence[bool], accuracy: float, query_quality: float | None = None, fatal_step: int | None = None
) -> float:
    """The reward of a rollout that has come to an answer, in 0..1.

    Args:
        are_good: of each reply, whether its reasoning and its action were read from it and the tool that it called did not fail.
        accuracy: of the answer, in 0..1, by a measure or by a judge.
        query_quality: what a judge thinks of its queries, in 0..1; None where none was asked or it failed: accuracy is all.
        fatal_step: see `process.turns.find_fatal_step`.
    """
    quality = accuracy if query_quality is None else ACCURACY_WEIGHT * accuracy + QUERY_WEIGHT * query_quality
    return compute_format_factor(are_good, fatal_step) * quality


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
    """Of the turns of a rollout, whose answer has an accuracy: one that nobody could judge is left out before."""
    action, last = pl.col("action"), turns.row(-1, named=True)
    if last["action"] != ActionKind.ANSWER.value or last["is_truncated"]:
        return 0.0
    are_good = turns.select((action != ActionKind.INVALID.value) & ~pl.col("has_error")).to_series().to_list()
    fatal_step = None if last["fatal_step"] is None else last["fatal_step"] - 1
    return compute_answer_reward(are_good, last["answer_reward"], last["query_quality"], fatal_step)
