"""Neutralisation of control tokens in texts of others: the model reads them as words.

A chat template makes one text of a conversation, in which `<|im_end|>` ends a turn and `<|image_pad|>` stands for an image,
whoever has written it. A page, a question or what a tool returns could end its turn and go on as somebody else, or claim an image
that is not there. What is trained on is read in the same way.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

_OF_OTHERS = ("user", "tool")


def disarm(messages: Sequence[Mapping[str, Any]], tokenizer: Any) -> list[dict[str, Any]]:
    """The messages, with a blank after the first letter of each control token in the texts of pages, questions and tools."""
    pattern = _find_control_tokens(tokenizer)
    return [
        {**message, "content": _disarm(message["content"], pattern)} if pattern and message["role"] in _OF_OTHERS else {**message}
        for message in messages
    ]


def _disarm(content: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(content, str):
        return pattern.sub(lambda found: f"{found[0][0]} {found[0][1:]}", content)
    return [{**part, "text": _disarm(part["text"], pattern)} if part["type"] == "text" else part for part in content]


@lru_cache(maxsize=16)
def _find_control_tokens(tokenizer: Any) -> re.Pattern[str] | None:
    """Pattern of a tokenizer's control tokens, longest first; None without any."""
    added = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    names = sorted((name for name in {*added, *tokenizer.all_special_tokens} if len(name) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, names))) if names else None
