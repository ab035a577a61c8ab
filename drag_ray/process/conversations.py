"""Recorded conversations as columns, and the states in which the policy replied."""

from typing import Any

import polars as pl

from drag_ray.storage.json_text import parse_json

MESSAGES = pl.List(pl.Struct({"role": pl.String, "content": pl.String}))
"""A conversation: a list of {"role", "content"}, images within the content (see `IMAGE_MARK`)."""

IMAGE_MARK = "\ufdd0"
"""Stands before and after the key of an image within a content; Unicode reserves it for such use, so that no text holds it."""


def decode_conversations(texts: pl.Series) -> pl.Series:
    """Conversations from their JSON texts, null where a text is not a list of messages with a role and a content.

    A content is a text or a list of text parts and image parts.
    """
    try:
        decoded = texts.str.json_decode(MESSAGES)
    except pl.exceptions.ComputeError:  # raised for the whole column if one text is malformed or has image parts
        decoded = pl.Series(texts.name, [_decode(text) for text in texts], dtype=MESSAGES)
    message = pl.element().struct
    is_whole = decoded.list.eval(message.field("role").is_not_null() & message.field("content").is_not_null()).list.all()
    return pl.select(pl.when(is_whole).then(decoded)).to_series().alias(texts.name)


def _decode(text: str) -> list[dict[str, str]] | None:
    try:
        return [{"role": str(item["role"]), "content": _join_parts(item["content"])} for item in parse_json(text)]
    except (ValueError, TypeError, KeyError):
        return None


def _join_parts(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "".join(
        f"{IMAGE_MARK}{part['image']}{IMAGE_MARK}" if part["type"] == "image" else str(part["text"]) for part in content
    )


def compute_states(conversations: pl.Expr, reply_positions: pl.Expr) -> pl.Expr:
    """For each reply of a conversation a 64-bit fingerprint of the messages before it.

    Equal fingerprints mean the same state, the same messages in the same order.  They are comparable within one version of
    Polars, so within one run of the stage and not beyond.

    Args:
        conversations: of type `MESSAGES`.
        reply_positions: for each conversation where its replies are, each at least 1.
    """
    placed = pl.struct(pl.element(), pl.int_range(pl.len()))
    return conversations.list.eval(placed.hash().cum_sum()).list.gather(reply_positions - 1, null_on_oob=True)
