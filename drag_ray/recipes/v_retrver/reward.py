"""V-Retrver's reward of replies that order candidates (there `verl_tool/workers/reward_manager/v_retrver.py`): `process.reward`.

R = .3 format + .7 rank + curiosity + redundancy, within -.5 and 1.5. The constants are the published ones; the standard deviation
of the rank term is 1, as its reward manager has it (its function's default is .5). There an order is evaluated as Python, here it
is matched. What that code gives a reply without a call, a redundancy of +.05, is taken for an oversight: such a reply gets none.
"""

import math
from collections import defaultdict
from dataclasses import dataclass

import polars as pl

from drag_ray.agent.protocols.ranking import read_order
from drag_ray.agent.tasks import ORDERING
from drag_ray.engine.generate import THINK, THINK_END
from drag_ray.types import ActionKind

FORMAT_WEIGHT, RANK_WEIGHT = 0.3, 0.7
RANK_DEVIATION = 1.0
CURIOSITY_RATE = 0.6
"""share of a group's replies with a call from which on calling is not rewarded, and what each missing share is worth"""
REDUNDANCY_COST = 0.05
"""what each call after the first one costs"""
LOWEST, HIGHEST = -0.5, 1.5
_START, _END = "<answer>", "</answer>"


def compute_format_term(reply: str) -> float:
    """Half for a reply that begins with reasoning and has an answer after it, each in its tags; half more if it has the form and
    its first answer is a list of whole numbers.

    A reply whose `<think>` ends the prompt, as in some chat templates, does not have the form, there as here.
    """
    if not _has_form(reply):
        return 0.0
    answer = reply.partition(_START)[2].partition(_END)[0]
    return 0.5 + 0.5 * (read_order(answer) is not None)


def _has_form(reply: str) -> bool:
    """True if its tags come in their order: as the published pattern says, and in one pass over a reply of any kind."""
    place = len(THINK)
    for tag in (THINK_END, _START, _END):
        found = reply.find(tag, place)
        if found < 0:
            return False
        place = found + len(tag)
    return reply.startswith(THINK)


def compute_rank_term(rank: int | None) -> float:
    """A Gaussian of the 1-based rank of the evidence, 1 for the first; 0 where there is none."""
    return 0.0 if rank is None else math.exp(-((rank - 1) ** 2) / (2 * RANK_DEVIATION**2))


def compute_curiosity(num_calls: int, calling_share: float) -> float:
    """The reward of a reply that looks closer where few of its group do.

    Args:
        num_calls: valid calls of tools.
        calling_share: the share of the group's replies with at least one.
    """
    return CURIOSITY_RATE * max(0.0, CURIOSITY_RATE - calling_share) if num_calls else 0.0


def compute_redundancy(num_calls: int) -> float:
    """The cost of valid calls after the first one, at most 0."""
    return -REDUNDANCY_COST * max(0, num_calls - 1)


def compute_rerank_reward(reply: str, rank: int | None, num_calls: int = 0, calling_share: float = 0.0) -> float:
    """The reward of a reply that orders candidates.

    Args:
        reply: word for word.
        rank: of the best evidence in the order, from 1; None where it is not among the candidates.
        num_calls: valid calls of tools before it.
        calling_share: of the replies of its group that have any.
    """
    total = FORMAT_WEIGHT * compute_format_term(reply) + RANK_WEIGHT * compute_rank_term(rank)
    total += compute_curiosity(num_calls, calling_share) + compute_redundancy(num_calls)
    return min(HIGHEST, max(LOWEST, total))


def take_rewards(turns: pl.DataFrame) -> pl.DataFrame:
    """The turns with the column reward as V-Retrver has it, for the task rerank; those of other tasks stay as they are.

    The last reply about each window earns that of the window, with the calls before it; the same windows of a question's rollouts
    are a group.
    """
    rewards = turns["reward"].to_list()
    windows = _list_windows(turns)
    groups: dict[tuple[str, int], list[bool]] = defaultdict(list)
    for window in windows:
        groups[window.group].append(window.num_calls > 0)
    for window in windows:
        calling_share = sum(groups[window.group]) / len(groups[window.group])
        rewards[window.start : window.stop] = [0.0] * (window.stop - window.start)
        rewards[window.stop - 1] = compute_rerank_reward(window.reply, window.rank, window.num_calls, calling_share)
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
        .filter(pl.col("task").is_in(ORDERING))
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
