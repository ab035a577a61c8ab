"""Which part of a reply is learned: the masks of the agentic retrieval fine-tuning (DRAG) reference, as spans of its text."""

import re
from typing import Literal

from drag_ray.agent.tools import SEARCH_NAME

Mask = Literal["none", "assistant", "search_think", "search_only"]
Span = tuple[int, int]
"""First character and the one after the last."""

_THINK = re.compile(r"<think>.*?</think>", re.DOTALL)
_SEARCH = re.compile(rf"<search>.*?</search>|<tool_call>(?:(?!</tool_call>).)*\b{SEARCH_NAME}\b.*?</tool_call>", re.DOTALL)


def find_spans(reply: str, mask: Mask) -> list[Span]:
    """The parts of a reply that `mask` lets through, in order; none if the reply has no such part.

    `search_only` is the search with its tags or its function call, `search_think` the reasoning too; `assistant` and `none` are
    all of the reply (`none` also learns what is not a reply, which is for the tokenizer to do).
    """
    if mask in ("none", "assistant"):
        return [(0, len(reply))] if reply else []
    searches = [found.span() for found in _SEARCH.finditer(reply)]
    if mask == "search_only" or not searches:
        return searches
    return sorted([*searches, *(found.span() for found in _THINK.finditer(reply))])
