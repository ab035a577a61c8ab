"""Training rows as conversations: what the model is shown, with its page images, and which of its replies are learned."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from drag_ray.engine.generate import Message, list_images
from drag_ray.errors import DataError


@dataclass(frozen=True)
class Conversation:
    """One training row: messages, the assistant messages among them that are learned, and what the row counts in the loss.

    `trained` holds their positions in `messages`, in rising order.
    """

    messages: list[Message]
    trained: tuple[int, ...]
    tools: list[dict[str, Any]] | None = None
    weight: float = 1.0

    @property
    def images(self) -> list[str]:
        """The keys of the images that are shown before the last learned reply. Nothing after it is read."""
        return list_images(self.messages[: self.trained[-1]])


def read_conversation(row: dict[str, Any]) -> Conversation:
    """The conversation of a row `{prompt, completion}` or `{messages, num_prompt_messages, train_turns}`, and perhaps `images`.

    Raises:
        DataError: the row is neither, no message of it is to be learned, or its images are not those that its messages show.
    """
    if "prompt" in row and "completion" in row:
        messages, start, wanted = [*row["prompt"], *row["completion"]], len(row["prompt"]), None
    elif {"messages", "num_prompt_messages", "train_turns"} <= row.keys():
        messages, start, wanted = row["messages"], row["num_prompt_messages"], row["train_turns"]
    else:
        raise DataError(
            f"a training row has the columns {sorted(row)}; expected prompt and completion, "
            "or messages, num_prompt_messages and train_turns. Run: python jobs/format.py"
        )
    replies = [place for place in range(start, len(messages)) if messages[place]["role"] == "assistant"]
    wanted = [True] * len(replies) if wanted is None else wanted
    if len(wanted) != len(replies):
        raise DataError(f"train_turns has {len(wanted)} values for {len(replies)} assistant messages. Run: python jobs/format.py")
    trained = tuple(place for place, is_wanted in zip(replies, wanted, strict=True) if is_wanted)
    if not trained:
        raise DataError("a training row has no assistant message to learn. Run: python jobs/format.py")
    tools = row.get("tools")
    return Conversation(
        _name_images(messages, row.get("images") or []),
        trained,
        json.loads(tools) if isinstance(tools, str) else tools,
        row.get("weight", 1.0),
    )


def _name_images(messages: list[Message], images: list[str]) -> list[Message]:
    """The messages as the policy was asked with them: plain text where there is no image, and images by their keys."""
    num_shown = sum(part["type"] == "image" for message in messages for part in _list_parts(message))
    if num_shown != len(images):
        raise DataError(
            f"a training row shows {num_shown} images in its messages and names {len(images)} of them. Run: python jobs/format.py"
        )
    keys = iter(images)
    return [{**message, "content": _name_parts(message, keys)} for message in messages]


def _name_parts(message: Message, keys: Iterator[str]) -> str | list[dict[str, str]]:
    parts = _list_parts(message)
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return [
        {"type": "image", "image": next(keys)} if part["type"] == "image" else {"type": "text", "text": part["text"]}
        for part in parts
    ]


def _list_parts(message: Message) -> list[dict[str, str]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
