"""What is read from one reply, whatever format it is written in."""

import re
from dataclasses import dataclass

from drag_ray.types import ActionKind, Evidence

_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Action:
    """What was read from one reply. `problem` says why it is invalid."""

    kind: ActionKind
    reasoning: str = ""
    query: str = ""
    answer: str = ""
    citations: tuple[Evidence, ...] = ()
    problem: str = ""


def split_reasoning(text: str) -> tuple[str, str]:
    """Reasoning and the rest. A template may open <think> itself, so that only its end is in the reply."""
    found = _THINK.search(text)
    if found:
        return found[1].strip(), text[: found.start()] + text[found.end() :]
    before, end_tag, after = text.partition("</think>")
    return (before.strip(), after) if end_tag else ("", text)


def render_reasoning(reasoning: str) -> str:
    """The reasoning before an action; nothing for none."""
    return f"<think>{reasoning}</think>\n" if reasoning else ""


def squeeze(text: str) -> str:
    """The text with each run of white space as one blank."""
    return " ".join(text.split())
