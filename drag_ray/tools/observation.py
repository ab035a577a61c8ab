"""Results of tool calls for the policy."""

from dataclasses import dataclass
from typing import Any

ERROR_CHARS = 500
"""characters of a tool's error that are kept, and shown"""


@dataclass(frozen=True, slots=True)
class ObservedImage:
    """An image that a tool shows, as a PIL image or the key of one in a store of the run, and what it is, in a few words; its
    name is not known before it is shown."""

    picture: Any
    caption: str


@dataclass(frozen=True, slots=True)
class Observation:
    """A tool's result: what the policy is told, what it is shown after it, by a tool that says so (`Tool.shows_images`), and the
    names of the images that stay in the prompt, of those that were there before; None for all."""

    text: str
    images: tuple[ObservedImage, ...] = ()
    kept_images: tuple[str, ...] | None = None


def cut_text(text: str, max_chars: int) -> str:
    """The rule by which observations are cut: the first `max_chars` characters, and a line that says how many there were."""
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}\n[cut: the first {max_chars:,} of {len(text):,} characters]"
