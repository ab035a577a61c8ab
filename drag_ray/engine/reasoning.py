"""The reasoning before a reply: how models mark it, and how it is told from the rest."""

THINK, THINK_END = "<think>", "</think>"
UNFINISHED_REASONING = f"the reasoning did not end ({THINK_END})"


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
