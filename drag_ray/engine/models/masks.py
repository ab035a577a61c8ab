"""Loss masks of a reply, as spans of its text: those of the agentic retrieval fine-tuning (DRAG) reference."""

import re
from typing import Literal

Mask = Literal["none", "assistant", "search_think", "search_only"]
Span = tuple[int, int]
"""First character and the one after the last."""

_THINK = re.compile(r"<think>.*?</think>", re.DOTALL)
_SEARCH = re.compile(r"<search>.*?</search>", re.DOTALL)
_CALLS = (
    re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)", re.DOTALL),
    re.compile(r"```.*?(?:```|\Z)", re.DOTALL),
    re.compile(r"(?:\A|(?<=</think>))\s*\{.*", re.DOTALL),
)


def find_spans(reply: str, mask: Mask, answer_tool: str = "") -> list[Span]:
    """The parts of a reply that `mask` lets through, in order; none if the reply has no such part.

    `search_only` is the search with its tags or its function call, and the call of any other function but the one that answers,
    in whichever form it was written; `search_think` the reasoning too; `assistant` and `none` are all of the reply (`none` also
    learns what is not a reply, which is for the tokenizer to do). `answer_tool` is the name of the function that answers, empty
    where actions are written in tags.
    """
    if mask in ("none", "assistant"):
        return [(0, len(reply))] if reply else []
    searches = [found.span() for found in _SEARCH.finditer(reply)] or (_find_calls(reply, answer_tool) if answer_tool else [])
    if mask == "search_only" or not searches:
        return searches
    return sorted([*searches, *(found.span() for found in _THINK.finditer(reply))])


def _find_calls(reply: str, answer_tool: str) -> list[Span]:
    """The calls of functions, but for the one that answers: with their tags, otherwise in fences, otherwise bare."""
    answers = re.compile(rf'"name"\s*:\s*"{re.escape(answer_tool)}"')
    for form in _CALLS:
        found = [match for match in form.finditer(reply) if '"name"' in match[0]]
        if found:
            return [match.span() for match in found if not answers.search(match[0])]
    return []
