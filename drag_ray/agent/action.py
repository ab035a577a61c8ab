"""What is read from one reply, whatever format it is written in."""

from dataclasses import dataclass

from drag_ray.types import ActionKind, Evidence

THINK, THINK_END = "<think>", "</think>"
UNFINISHED_REASONING = f"the reasoning did not come to its end ({THINK_END})"


@dataclass(frozen=True, slots=True)
class Action:
    """What was read from one reply. `problem` says why it is invalid."""

    kind: ActionKind
    reasoning: str = ""
    query: str = ""
    answer: str = ""
    citations: tuple[Evidence, ...] = ()
    problem: str = ""


def split_reasoning(text: str) -> tuple[str, str | None]:
    """The reasoning and the rest of a reply; the rest is None if the reply ends within its reasoning.

    A reply may begin within the reasoning without saying so: then the chat template opened it, and what is there up to the
    first end is reasoning.
    """
    start, end = text.find(THINK), text.find(THINK_END)
    if start < 0 and end < 0:
        return "", text
    if end < 0:
        return text[start + len(THINK) :].strip(), None
    if 0 <= start < end:
        return text[start + len(THINK) : end].strip(), text[:start] + text[end + len(THINK_END) :]
    return text[:end].strip(), text[end + len(THINK_END) :]


def render_reasoning(reasoning: str) -> str:
    """The reasoning before an action; nothing for none."""
    return f"{THINK}{reasoning}{THINK_END}\n" if reasoning else ""


def squeeze(text: str) -> str:
    """The text with each run of white space as one blank."""
    return " ".join(text.split())
