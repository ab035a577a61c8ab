"""Formats in which a model writes its actions: one module each, and one line in `registry`."""

from dataclasses import dataclass

from drag_ray.types import ActionKind, Evidence


@dataclass(frozen=True, slots=True)
class Action:
    """The content of one reply: a tool's `arguments` are JSON, not yet checked. `problem` says why it is invalid."""

    kind: ActionKind
    reasoning: str = ""
    query: str = ""
    answer: str = ""
    citations: tuple[Evidence, ...] = ()
    tool: str = ""
    arguments: str = ""
    problem: str = ""


def collapse_spaces(text: str) -> str:
    """The text with each run of white space as one blank."""
    return " ".join(text.split())
