"""Messages of training rows: prompts cut from recorded conversations, replies written by the policy's protocol."""

import polars as pl

from drag_ray.agent.protocols.registry import get_protocol


def cut_conversation(num_messages: str | pl.Expr) -> pl.Expr:
    """The first `num_messages` messages of the recorded conversation in the column `messages`."""
    return pl.col("messages").list.head(pl.col(num_messages) if isinstance(num_messages, str) else num_messages)


def as_reply(text: str) -> pl.Expr:
    """A column of texts as lists of one message of the assistant."""
    return pl.concat_list(pl.struct(role=pl.lit("assistant"), content=pl.col(text)))


def render_searches(rows: pl.DataFrame, query: str, reasoning: str, into: str) -> pl.DataFrame:
    """Add the column `into`: replies with which the policy asks `query` after `reasoning`, in the words of its protocol."""
    replies = [
        get_protocol(protocol).render_search(text, thought)
        for protocol, text, thought in rows.select("protocol", query, reasoning).iter_rows()
    ]
    return rows.with_columns(pl.Series(into, replies, dtype=pl.String)).with_columns(as_reply(into).alias(into))
