"""Which part of a reply is learned: the masks of the agentic retrieval fine-tuning (DRAG) reference, as spans of its text."""

import re
from functools import cache
from typing import Literal

Mask = Literal["none", "assistant", "search_think", "search_only"]
Span = tuple[int, int]
"""First character and the one after the last."""

_THINK = re.compile(r"<think>.*?</think>", re.DOTALL)


def find_spans(reply: str, mask: Mask, search_tool: str = "") -> list[Span]:
    """The parts of a reply that `mask` lets through, in order; none if the reply has no such part.

    `search_only` is the search with its tags or its function call, `search_think` the reasoning too; `assistant` and `none` are
    all of the reply (`none` also learns what is not a reply, which is for the tokenizer to do). `search_tool` is the name of the
    function that searches, empty where searches are written in tags.
    """
    if mask in ("none", "assistant"):
        return [(0, len(reply))] if reply else []
    searches = [found.span() for found in _match_searches(search_tool).finditer(reply)]
    if mask == "search_only" or not searches:
        return searches
    return sorted([*searches, *(found.span() for found in _THINK.finditer(reply))])


@cache
def _match_searches(search_tool: str) -> re.Pattern[str]:
    call = rf"|<tool_call>(?:(?!</tool_call>).)*\b{re.escape(search_tool)}\b.*?</tool_call>" if search_tool else ""
    return re.compile(f"<search>.*?</search>{call}", re.DOTALL)
