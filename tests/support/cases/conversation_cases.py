"""A conversation, and which of its tokens are learned."""

from collections.abc import Mapping
from typing import Any

from drag_ray.engine.models.tokens import IGNORED_LABEL


def say(role: str, content: str) -> dict[str, str]:
    """A message."""
    return {"role": role, "content": content}


CONVERSATION = [
    say("system", "Search."),
    say("user", "Who rows?"),
    say("assistant", "<search>rows</search>"),
    say("user", "Page 3: nothing about <search>rowing</search>"),
    say("assistant", "<think>try again</think>\n<search>rowing club</search>"),
    say("user", "Page 9: the club"),
]


def decode_learned(row: Mapping[str, Any], tokenizer: Any) -> list[str]:
    """The text of each run of learned tokens."""
    spans: list[list[int]] = [[]]
    for token, label in zip(row["input_ids"], row["labels"], strict=True):
        if label == IGNORED_LABEL:
            spans.append([])
        else:
            assert label == token
            spans[-1].append(token)
    return [tokenizer.decode(span) for span in spans if span]
