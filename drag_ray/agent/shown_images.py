"""The part of a conversation that is in the prompt: collection asks with it, and training learns from the very same.

Old images leave the prompt whole (`agent.image_searches`). Of an old text (`agent.text_searches`) the lines stay that name pages,
as `[1] manual.pdf#7`, or without any its first line, and one that says so.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from drag_ray.engine.generate import Message, list_images

_NAMES_PAGE = re.compile(r"\[\d{1,4}\] .{1,300}#\d+(, image_\d+)?")
_LEFT_OUT = "[older result: its text is left out]"
_KEPT_LINES = 50
_KEPT_CHARS = 200
_LABEL_CHARS = 200

Content = str | list[dict[str, str]]
"""A message's content: text, or parts, some of which are images."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """Parts of a conversation that a prompt leaves out: places among all of its images, and of messages without their text."""

    images: tuple[int, ...] = ()
    messages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownImage:
    """An image that the policy was shown: its key in the stores of the run, and the line before it, which names it."""

    key: str
    label: str


def list_hidden_images(
    messages: Sequence[Message], num_opening: int, image_searches: int, dismissed: Collection[int] = ()
) -> tuple[int, ...]:
    """The places, among all images of a conversation, of those that are left out of its prompt.

    Args:
        messages: the conversation; what a page or image was called stays in it.
        num_opening: messages before the first reply, whose images stay unless they are dismissed.
        image_searches: of so many messages after these, the latest, images stay; 0 is all.
        dismissed: places of images that the policy wants to see no longer; those of a question are never among them.
    """
    counts = [len(list_images([message])) for message in messages]
    later = [place for place, count in enumerate(counts) if count and place >= num_opening]
    old = set(later[:-image_searches]) if image_searches else set[int]()
    owners = [place for place, count in enumerate(counts) for _ in range(count)]
    return tuple(number for number, owner in enumerate(owners) if owner in old or number in dismissed)


def list_hidden_messages(messages: Sequence[Message], num_opening: int, text_searches: int) -> tuple[int, ...]:
    """The places, in a conversation, of the messages whose text is left out of its prompt, as far as it is long.

    Args:
        messages: the conversation.
        num_opening: messages before the first reply, which always stay.
        text_searches: of so many messages after these that are no replies, the latest, the text stays; 0 is all.
    """
    later = [place for place, message in enumerate(messages) if place >= num_opening and message["role"] != "assistant"]
    return tuple(later[:-text_searches]) if text_searches else ()


def leave_out(messages: Sequence[Message], hidden: Hidden) -> list[Message]:
    """A conversation as the model is shown it."""
    shortened = [_shorten(message) if place in hidden.messages else message for place, message in enumerate(messages)]
    return leave_out_images(shortened, hidden.images)


def leave_out_images(messages: Sequence[Message], hidden: Collection[int]) -> list[Message]:
    """A conversation as the model is shown it: without the images at these places among all of them."""
    shown: list[Message] = []
    start = 0
    for message in messages:
        stop = start + len(list_images([message]))
        gone = {number - start for number in hidden if start <= number < stop}
        shown.append(_without_images(message, gone) if gone else message)
        start = stop
    return shown


def text_part(text: str) -> dict[str, str]:
    """A part of a content that is text."""
    return {"type": "text", "text": text}


def image_part(key: str) -> dict[str, str]:
    """A part of a content that is an image, by its key."""
    return {"type": "image", "image": key}


def join_text(parts: Sequence[dict[str, str]]) -> Content:
    """Neighbouring text parts as one; without an image the content is plain text."""
    joined: list[dict[str, str]] = []
    for part in parts:
        if joined and part["type"] == joined[-1]["type"] == "text":
            joined[-1] = text_part(joined[-1]["text"] + part["text"])
        else:
            joined.append(part)
    return joined[0]["text"] if len(joined) == 1 and joined[0]["type"] == "text" else joined


def list_parts(content: Content) -> list[dict[str, str]]:
    """A content as parts."""
    return content if isinstance(content, list) else [text_part(content)]


def label_images(content: Content) -> tuple[ShownImage, ...]:
    """The images of a content, each with the line before it, which names it."""
    images: list[ShownImage] = []
    label = ""
    for part in content if isinstance(content, list) else ():
        if part["type"] == "image":
            images.append(ShownImage(str(part["image"]), label))
        label = "" if part["type"] == "image" else part["text"].strip().rpartition("\n")[-1][:_LABEL_CHARS]
    return tuple(images)


def _shorten(message: Message) -> Message:
    """A message without its text, but for its images and what names pages."""
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": _shorten_text(content)}
    return {
        **message,
        "content": [text_part(_shorten_text(part["text"])) if part["type"] == "text" else part for part in content],
    }


def _shorten_text(text: str) -> str:
    lines = text.split("\n")
    kept = [line for line in lines if _NAMES_PAGE.fullmatch(line)][:_KEPT_LINES] or [lines[0][:_KEPT_CHARS]]
    shortened = "\n".join([*kept, _LEFT_OUT])
    return shortened if len(shortened) < len(text) else text


def _without_images(message: Message, gone: Collection[int]) -> Message:
    kept: list[dict[str, Any]] = []
    number = 0
    for part in message["content"]:
        is_image = part["type"] == "image"
        if not (is_image and number in gone):
            kept.append(part)
        number += is_image
    return {**message, "content": join_text(kept)}
