"""The rewards of other systems in place of this one's, reply by reply: `process.reward`."""

from collections import defaultdict
from dataclasses import dataclass

import polars as pl

from drag_ray.process.answer_reward import Step, compute_answer_reward
from drag_ray.process.config import RewardName
from drag_ray.process.rerank_reward import compute_rerank_reward
from drag_ray.types import ActionKind


def take_published_rewards(turns: pl.DataFrame, name: RewardName) -> pl.DataFrame:
    """The turns with the column reward as that system has it, for the task that it has; those of other tasks stay as they are.

    v_retrver: the last reply about each window of the task rerank earns that of the window, with the calls before it; the same
    windows of a question's rollouts are a group. opensearch_vl: the last reply of the task answer earns that of the whole
    rollout, whose accuracy is the ANLS* of its answer or what the judge says of it; without a judge nobody judges its queries.
    """
    rewards = turns["reward"].to_list()
    if name == "v_retrver":
        windows = _list_windows(turns)
        groups: dict[tuple[str, int], list[bool]] = defaultdict(list)
        for window in windows:
            groups[window.group].append(window.num_calls > 0)
        for window in windows:
            calling_share = sum(groups[window.group]) / len(groups[window.group])
            rewards[window.start : window.stop] = [0.0] * (window.stop - window.start)
            rewards[window.stop - 1] = compute_rerank_reward(window.reply, window.rank, window.num_calls, calling_share)
    if name == "opensearch_vl":
        chosen = turns.with_row_index("place").filter(pl.col("task") == "answer")
        for rollout in chosen.partition_by("trajectory_id", maintain_order=True):
            for place in rollout["place"]:
                rewards[place] = 0.0
            rewards[rollout["place"][-1]] = _reward_rollout(rollout)
    return turns.with_columns(pl.Series("reward", rewards, dtype=pl.Float64))


@dataclass(frozen=True)
class _Window:
    """Rows `start` to `stop` of a table of turns: calls of tools, and the reply after them, which orders or cannot be read. A
    window that calls alone have used up has no order."""

    group: tuple[str, int]
    start: int
    stop: int
    reply: str
    rank: int | None
    num_calls: int


def _list_windows(turns: pl.DataFrame) -> list[_Window]:
    """Those of all lists."""
    windows = (
        turns.with_row_index("place")
        .filter(pl.col("task") == "rerank")
        .group_by("question_id", "trajectory_id", "window", maintain_order=True)
        .agg(
            start=pl.col("place").first(),
            stop=pl.col("place").last() + 1,
            reply=pl.col("reply").str.join(""),
            rank=pl.col("evidence_rank").last(),
            num_calls=((pl.col("action") == ActionKind.TOOL.value) & ~pl.col("has_error")).sum(),
        )
    )
    return [_Window((question_id, number), *row) for question_id, _, number, *row in windows.iter_rows()]


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
