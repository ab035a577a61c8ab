"""What a call returns to the policy."""

from dataclasses import dataclass

ERROR_CHARS = 500
"""characters of a tool's error that are kept, and shown"""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a tool found: text."""

    text: str


def cut_text(text: str, max_chars: int) -> str:
    """The rule by which observations are cut: the first `max_chars` characters, and a line that says how many there were."""
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}\n[cut: the first {max_chars:,} of {len(text):,} characters]"
