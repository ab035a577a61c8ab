"""Trajectories as tables: one row a turn, and one row a trajectory with what its searches came to.

Rollouts that break down in the errors of their tools are trained on as OpenSearch-VL does (fatal-aware GRPO,
https://github.com/shawn0728/OpenSearch-VL): what was said before the breakdown may have been right, so it can be encouraged and
is never discouraged; what follows says nothing of the policy and is not learned. There a rollout that loops or ends without an
answer counts as broken down as well; here only one whose tools failed does.
"""

from collections.abc import Sequence

import polars as pl

from drag_ray import process
from drag_ray.agent.answers import RIGHT_ANLS
from drag_ray.agent.degeneration import to_query_key
from drag_ray.agent.scores import gain, rank_score, utility
from drag_ray.agent.tasks import ANSWERING, ORDERING, SEARCHING
from drag_ray.process.config import ProcessConfig
from drag_ray.process.quality import add_drop_reasons
from drag_ray.process.reward_function import compute_rewards
from drag_ray.process.rewards import turn_reward
from drag_ray.process.trajectories import IMAGE_MARK
from drag_ray.types import ActionKind
from drag_ray.variants import load_variant

MAX_ERRORS = 3
"""failed calls in a row that break a rollout down"""
_TRAJECTORY_COLUMNS = (
    *("question_id", "question", "trajectory_id", "sample_index", "preset", "hinted", "protocol", "top_k", "depth"),
    *("query_mode", "question_rank", "knows_question", "baseline", "prompt_set", "task"),
)
_TURN_COLUMNS = (
    *("step", "action", "query", "reasoning", "num_prompt_messages", "num_hits", "evidence_rank", "finish_reason"),
    *("completion_token_ids", "completion_logprobs", "prompt_digest", "tool", "tool_s"),
)
_JUDGED = ("answer_reward", "query_quality")
"""Of the trajectory: see `trajectories` and `judging`."""
_HIDDEN = ("num_prompt_messages", "hidden_images", "hidden_messages")

_IS_SEARCH = pl.col("action") == ActionKind.SEARCH.value
_IS_CALL = pl.col("action") == ActionKind.TOOL.value
_WANTS_ANSWER = pl.col("task").is_in(ANSWERING)
_ORDERS = pl.col("task").is_in(ORDERING)
_FOUND_RANK = pl.when(~pl.col("has_error")).then("evidence_rank")
"""Null for a search that failed, which has found nothing."""


def explode_turns(trajectories: pl.DataFrame, config: ProcessConfig) -> pl.DataFrame:
    """One row a turn, in the order of trajectories and steps.

    Columns: those of the trajectory (`_TRAJECTORY_COLUMNS`), step (1-based turn), action, query, query_key (the query without
    differences of spacing), reasoning, reply (what the model wrote, word for word), completion_token_ids and completion_logprobs
    (the same in the tokens that it drew; none for trajectories from elsewhere), prompt_digest (of what it was drawn from), tool
    (that was called) and tool_s, num_prompt_messages, state (a fingerprint of those messages), num_hits, evidence_rank,
    rank_score, is_scored (what its task is measured by: a search, or the answer), found (evidence within top_k, or the right
    answer), has_error (the search or the tool itself failed), is_truncated (the reply was cut at its token limit), is_late (a
    search or a call where the answer was asked for), window (of the task rerank: the 0-based number of the window that the reply
    is about, which ends with a reply that is no call, or with the last one that it may take), is_repeated (the trajectory asked
    the same before), drop_reason (why nothing should be trained on the reply, empty if it is fine), utility (of a search's rank,
    to depth; of an answer that is scored what it is worth), gain (of a search: its utility above the question's; of an answer all
    of it), improvement (its utility above the highest before, the question's among them; with the reward candidates, of a search,
    what it adds to them; with a reward of the user's, in the task find_page, of every reply what that gives it), reward (see
    `rewards`) and fatal_step (see `add_fatal_steps`).
    """
    compared = _compare_turns(_score_turns(_list_turns(trajectories.lazy())))
    if config.reward == process.CANDIDATES:
        compared = compared.with_columns(
            improvement=pl.when(pl.col("task").is_in(ANSWERING))  # whose searches earn nothing by any reward
            .then("improvement")
            .when(_IS_SEARCH & ~pl.col("has_error"))
            .then("added_recall")
            .otherwise(0.0)
        )
    turns = compared.with_columns(reward=turn_reward(config)).collect()
    turns = add_fatal_steps(turns)
    if config.reward in process.ELSEWHERE:
        turns = load_variant(process, config.reward).take_rewards(turns)
    elif config.function:
        earned = compute_rewards(trajectories, config.function)
        turns = turns.with_columns(
            earned, improvement=pl.when(pl.col("task").is_in(SEARCHING)).then(earned).otherwise("improvement")
        )
    unneeded = ("added_recall", "evidence_files", "answers", "finish_reason", "is_last", "is_unfit", "is_later_search", "change")
    return add_drop_reasons(turns, config.filters).drop(*unneeded, *_JUDGED)


def find_fatal_step(has_errors: Sequence[bool]) -> int | None:
    """The 0-based step that begins the first `MAX_ERRORS` failed calls in a row; None without."""
    length = 0
    for step, has_error in enumerate(has_errors):
        length = length + 1 if has_error else 0
        if length == MAX_ERRORS:
            return step - MAX_ERRORS + 1
    return None


def add_fatal_steps(turns: pl.DataFrame) -> pl.DataFrame:
    """Add the column fatal_step: the 1-based step with which a rollout of the task answer breaks down, null where it does not."""
    errors = turns.filter(_WANTS_ANSWER).group_by("trajectory_id", maintain_order=True).agg("has_error")
    steps = [find_fatal_step(row) for row in errors["has_error"]]
    found = pl.Series("fatal_step", [None if step is None else step + 1 for step in steps], dtype=pl.Int32)
    return turns.join(errors.select("trajectory_id", found), on="trajectory_id", how="left", maintain_order="left")


def _score_turns(turns: pl.LazyFrame) -> pl.LazyFrame:
    """Score each turn by itself."""
    is_scored = pl.when(_WANTS_ANSWER).then(pl.col("action") == ActionKind.ANSWER.value).otherwise(_IS_SEARCH)
    return turns.with_columns(
        rank_score=rank_score(pl.col("evidence_rank"), pl.col("top_k")),
        is_scored=is_scored,
        utility=pl.when(is_scored & _WANTS_ANSWER)
        .then("answer_reward")
        .when(is_scored)
        .then(utility(_FOUND_RANK, pl.col("depth")))
        .otherwise(0.0),
        is_truncated=pl.col("finish_reason") == "length",
        is_later_search=_IS_SEARCH & (_IS_SEARCH.cast(pl.Int32).cum_sum().over("trajectory_id") > 1),
        # The last reply about a window is asked for its order, which is a search.
        is_late=((_IS_SEARCH & ~_ORDERS) | _IS_CALL) & pl.col("is_last"),
        window=(~_IS_CALL | pl.col("is_last")).cast(pl.Int32).cum_sum().shift(fill_value=0).over("trajectory_id"),
    )


def _compare_turns(turns: pl.LazyFrame) -> pl.LazyFrame:
    """Score each turn beside the question and the turns before it."""
    is_scored = pl.col("is_scored")
    asked = pl.when(_WANTS_ANSWER).then(0.0).otherwise(utility(pl.col("question_rank"), pl.col("depth")))
    before = pl.col("utility").cum_max().shift().over("trajectory_id")
    latest = pl.when(_IS_SEARCH).then("utility").shift().forward_fill().over("trajectory_id")
    return turns.with_columns(
        found=pl.when(_WANTS_ANSWER)
        .then(is_scored & (pl.col("answer_reward") >= RIGHT_ANLS))
        .otherwise(_IS_SEARCH & (pl.col("rank_score") > 0) & ~pl.col("has_error")),
        is_repeated=_IS_SEARCH & ~pl.struct("trajectory_id", "action", "query_key").is_first_distinct(),
        is_unfit=(pl.col("action") == ActionKind.INVALID.value) | pl.col("is_truncated") | pl.col("is_late"),
        gain=pl.when(is_scored & _WANTS_ANSWER)
        .then("utility")
        .when(is_scored)
        .then(gain(_FOUND_RANK, pl.col("question_rank"), pl.col("depth")))
        .otherwise(0.0),
        improvement=pl.when(is_scored).then(pl.col("utility") - pl.max_horizontal(asked, before.fill_null(0.0))).otherwise(0.0),
        change=pl.when(_IS_SEARCH).then(pl.col("utility") - latest.fill_null(asked)).otherwise(0.0),
    )


def _list_turns(trajectories: pl.LazyFrame) -> pl.LazyFrame:
    """The recorded turns, a row each, with what is known of their trajectories."""
    turn = pl.col("turns").struct
    is_answer = _WANTS_ANSWER & (turn.field("action") == ActionKind.ANSWER.value)
    return (
        trajectories.with_columns(evidence_files=pl.col("evidence").list.eval(pl.element().struct.field("file")))
        .explode("turns", "states", "are_last", "replies", "added_recall", empty_as_null=False)
        .select(
            *_TRAJECTORY_COLUMNS,
            *(turn.field(name) for name in _TURN_COLUMNS),
            *_JUDGED,
            "answers",
            "evidence_files",
            "added_recall",
            reply="replies",
            state="states",
            is_last="are_last",
            query_key=to_query_key(pl.when(is_answer).then("final_answer").otherwise(turn.field("query"))),
            has_error=(turn.field("error") != "") | (turn.field("tool_error") != ""),
        )
    )


def summarise_trajectories(trajectories: pl.DataFrame, turns: pl.DataFrame) -> pl.DataFrame:
    """One row a trajectory, with the outcome of its searches.

    Adds to the columns of `trajectories` (without turns): num_opening_messages (messages before the first reply), has_images,
    hidden (for each reply the number of messages before it, and what of them its prompt was without: `_HIDDEN`), num_turns,
    num_invalid (replies without a readable action), num_searches (those that ran), valid (one of them found evidence within
    top_k), first_success_step, best_step, best_query, best_rank, best_rank_score (the highest rank score, the earliest of equals;
    null unless valid), best_gain (of all searches; null without one), cumulative_effort and reward (the sum of its turns').
    """
    return (
        trajectories.lazy()
        .with_columns(
            num_opening_messages=pl.col("turns").list.first().struct.field("num_prompt_messages"),
            has_images=pl.col("messages")
            .list.eval(pl.element().struct.field("content").str.contains(IMAGE_MARK, literal=True))
            .list.any(),
            hidden=pl.col("turns").list.eval(pl.struct(*(pl.element().struct.field(name) for name in _HIDDEN))),
        )
        .drop("turns", "states", "are_last", "replies", "added_recall")
        .join(_summarise_turns(turns.lazy()), on="trajectory_id", how="left", maintain_order="left")
        .join(_summarise_searches(turns.lazy()), on="trajectory_id", how="left", maintain_order="left")
        .with_columns(
            pl.col("num_turns", "num_invalid", "num_searches").fill_null(0),
            pl.col("reward").fill_null(0.0),
            valid=pl.col("best_step").is_not_null(),
            cumulative_effort=cumulative_effort(
                pl.col("first_position"), pl.col("first_rank"), pl.col("num_searches"), pl.col("top_k")
            ),
        )
        .drop("first_position", "first_rank")
        .collect()
    )


def _summarise_turns(turns: pl.LazyFrame) -> pl.LazyFrame:
    return turns.group_by("trajectory_id").agg(
        num_turns=pl.len(), num_invalid=(pl.col("action") == ActionKind.INVALID.value).sum(), reward=pl.col("reward").sum()
    )


def _summarise_searches(turns: pl.LazyFrame) -> pl.LazyFrame:
    """The searches that ran: how many, the first that succeeded and the best."""
    found, is_search = pl.col("found"), pl.col("action") == ActionKind.SEARCH.value
    # A trajectory's rows are in the order of its steps.
    best = pl.col("utility").filter(found).arg_max()
    return (
        turns.filter(is_search | pl.col("is_scored"), ~pl.col("has_error"))
        .group_by("trajectory_id", maintain_order=True)
        .agg(
            num_searches=is_search.sum(),
            first_success_step=pl.col("step").filter(found).first(),
            first_position=found.arg_true().first(),
            first_rank=pl.col("evidence_rank").filter(found).first(),
            best_step=pl.col("step").filter(found).get(best, null_on_oob=True),
            best_query=pl.col("query").filter(found).get(best, null_on_oob=True),
            best_rank=pl.col("evidence_rank").filter(found).min(),
            best_rank_score=pl.col("rank_score").filter(found).max(),
            best_gain=pl.col("gain").max(),
        )
    )


def cumulative_effort(first_success: pl.Expr, rank: pl.Expr, num_searches: pl.Expr, top_k: pl.Expr) -> pl.Expr:
    """The cumulative effort score of the agentic retrieval fine-tuning (DRAG) reference: how few pages came before the evidence.

    1 when the very first page was evidence, near 0 when it was the last of all pages, 0 when there was none.
    With position = top_k * first_success + rank, it is 1 - (position - 1) / (num_searches * top_k), within [0, 1].

    Args:
        first_success: 0-based position among the trajectory's searches of the first one that succeeded, or null.
        rank: 1-based rank of the evidence page in that search, or null.
        num_searches: searches of the trajectory.
        top_k: pages shown for a search.
    """
    position = top_k * first_success + rank
    return (1 - (position - 1) / (num_searches * top_k)).clip(0.0, 1.0).fill_null(0.0)
