"""The rewards of other systems in place of this one's, reply by reply: `process.reward`.

OpenSearch-VL (https://github.com/shawn0728/OpenSearch-VL): format times (.8 accuracy + .2 quality of queries).
Where this departs from that code: a judge that fails says nothing, there it says 0; an answer may be right in part (.5); and a
rollout that loops, runs out of time or turns, or gives no answer is worth 0, there its well-formed steps earn it the share of
its queries.

V-Retrver (https://github.com/chendy25/V-Retrver, there `verl_tool/workers/reward_manager/v_retrver.py`):
R = .3 format + .7 rank + curiosity + redundancy, within -.5 and 1.5. The constants are the published ones; the standard deviation
of the rank term is 1, as its reward manager has it (its function's default is .5). There an order is evaluated as Python, here it
is matched. What that code gives a reply without a call, a redundancy of +.05, is taken for an oversight: such a reply gets none.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from drag_ray.agent.protocols.ranking import read_order
from drag_ray.agent.tasks import ANSWERING, ORDERING
from drag_ray.engine.reasoning import THINK, THINK_END
from drag_ray.process.config import RewardName
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


def compute_rank_term(rank: int | None, deviation: float = RANK_DEVIATION) -> float:
    """A Gaussian of the 1-based rank of the evidence, 1 for the first; 0 where there is none."""
    return 0.0 if rank is None else math.exp(-((rank - 1) ** 2) / (2 * deviation**2))


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
        fatal_step: see `turns.find_fatal_step`.
    """
    if not has_answer:
        return 0.0
    if accuracy is None:
        return None
    quality = accuracy if query_quality is None else ACCURACY_WEIGHT * accuracy + QUERY_WEIGHT * query_quality
    return compute_format_factor(steps, fatal_step) * quality


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
        chosen = turns.with_row_index("place").filter(pl.col("task").is_in(ANSWERING))
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
