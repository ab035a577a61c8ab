"""The selection of searches that become training rows, and messages of rows: cut from conversations, or written by protocol."""

import polars as pl

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.format.config import WEIGHTS, FormatConfig


def is_usable() -> pl.Expr:
    """Turns that the process stage found fit to train with: a search that failed, say, tells nothing about its query."""
    return pl.col("drop_reason") == ""


def is_target(config: FormatConfig) -> pl.Expr:
    """Usable searches to train towards: those that beat the question by enough, those that found evidence, or all."""
    rules = {"gain": pl.col("gain") > config.min_gain, "found": pl.col("rank_score") > 0, "all": pl.lit(True)}
    return is_usable() & rules[config.targets]


def is_improvement(config: FormatConfig) -> pl.Expr:
    """Usable searches that beat the question, and all searches before in their conversation, by enough to train towards."""
    return is_usable() & pl.col("is_scored") & (pl.col("improvement") > config.min_gain)


def keep_first(rows: pl.DataFrame, limit: int) -> pl.DataFrame:
    """The first `limit` rows of each question, all when `limit` is 0."""
    return rows.filter(pl.int_range(pl.len()).over("question_id") < limit) if limit else rows


def select_best_queries(searches: pl.DataFrame, config: FormatConfig) -> pl.DataFrame:
    """The distinct queries of each question that gain most, over all of its samples and turns, best first.

    Many queries of a question gain the same, as all that bring the evidence to the first rank. Of these that comes first whose
    source, the policy itself or a baseline that proposed it, gains most on average: it is the likelier to win for another
    question as well. Then the earlier turn: it needed less, and its reasoning speaks of the question alone.
    """
    source_gain = pl.col("gain").mean().over("baseline")
    ranked = (
        searches.filter(is_usable())
        .with_columns(source_gain=source_gain)
        .filter(is_target(config))
        .sort(
            *("question_id", "gain", "source_gain", "baseline", "step", "sample_index"),
            descending=[False, True, True, False, False, False],
            maintain_order=True,
        )
        .drop("source_gain")
    )
    return keep_first(
        ranked.unique(["question_id", "query_key"], keep="first", maintain_order=True), config.max_searches_per_question
    )


def cut_conversation(num_messages: str | pl.Expr) -> pl.Expr:
    """The first `num_messages` messages of the recorded conversation in the column `messages`."""
    return pl.col("messages").list.head(pl.col(num_messages) if isinstance(num_messages, str) else num_messages)


def as_reply(text: str) -> pl.Expr:
    """A column of texts as lists of one message of the assistant."""
    return pl.concat_list(pl.struct(role=pl.lit("assistant"), content=pl.col(text)))


def render_searches(rows: pl.DataFrame, into: str, thinks: pl.Expr | bool) -> pl.DataFrame:
    """Add the column `into`: replies with the column query, in the words of their protocol, after the reasoning where `thinks` is
    true."""
    said = rows.select("protocol", "query", pl.when(thinks).then("reasoning").otherwise(pl.lit("")))
    replies = [get_protocol(protocol).render_search(query, thought) for protocol, query, thought in said.iter_rows()]
    return rows.with_columns(pl.Series(into, replies, dtype=pl.String)).with_columns(as_reply(into).alias(into))


def select_replies(rows: pl.DataFrame, num_prompt_messages: str, config: FormatConfig) -> pl.DataFrame:
    """The columns of a `ReplyRow`, whose prompt is as many messages of the conversation."""
    return rows.select(
        cut_conversation(num_prompt_messages).alias("prompt"),
        *("completion", "question_id", "trajectory_id"),
        pl.col("gain").alias("score"),
        row_weight(config),
        "prompt_digest",
    )


def row_weight(config: FormatConfig) -> pl.Expr:
    """The weight of a row in the loss."""
    return WEIGHTS[config.weights](pl.col).alias("weight")
