"""Training rows as conversations: the messages with their page images, and the replies that are learned."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict, TypeVar, cast

from drag_ray.engine.generate import Message, list_images
from drag_ray.errors import DataError
from drag_ray.storage.json_text import parse_json

Row = Mapping[str, object]
"""A training row as a file holds it; `take_columns` looks at its columns."""


class ShownRow(TypedDict):
    """Optional columns of any row besides its messages."""

    images: NotRequired[list[str] | None]
    """the keys of the images that its messages show"""
    tools: NotRequired[str | list[dict[str, Any]] | None]
    """the functions that the model is shown, as JSON or read from it"""
    weight: NotRequired[float]
    """what the row counts in the loss"""


class PromptCompletion(ShownRow):
    """A prompt and the reply to learn."""

    prompt: list[Message]
    completion: list[Message]
    prompt_digest: NotRequired[str | None]
    """of the prompt as an engine had it (see `prompt_digest`); none where that is not known"""


class TrainedTurns(ShownRow):
    """A conversation; for each assistant message from `num_prompt_messages` on `train_turns` says whether it is learned, and
    `prompt_digests`, where it is there, what its prompt was to the engine."""

    messages: list[Message]
    num_prompt_messages: int
    train_turns: list[bool]
    prompt_digests: NotRequired[list[str] | None]


RowT = TypeVar("RowT", bound=Row)


def take_columns(row: Row, row_type: type[RowT], kind: str) -> RowT:
    """The row as a `row_type`, a TypedDict whose columns it has. Raises DataError where it lacks some; `kind` says what it ought
    to be."""
    if missing := _list_columns(row_type) - row.keys():
        raise DataError(f"{kind} lacks {', '.join(sorted(missing))}. Run: python jobs/format.py")
    return cast(RowT, row)


def _list_columns(row_type: type[Row]) -> frozenset[str]:
    """The columns that no row of the type is without."""
    return getattr(row_type, "__required_keys__", frozenset[str]())


@dataclass(frozen=True)
class Conversation:
    """One training row: messages, the assistant messages among them that are learned, and what the row counts in the loss.

    `trained` holds their positions in `messages`, in rising order. `prompt_digest` is of what the last of them replied to, as the
    engine had it (see `compute_prompt_digest`); empty where that is not known. That prompt holds those of the others.
    """

    messages: list[Message]
    trained: tuple[int, ...]
    tools: list[dict[str, Any]] | None = None
    weight: float = 1.0
    prompt_digest: str = ""

    @property
    def images(self) -> list[str]:
        """The keys of the images that are shown before the last learned reply. Nothing after it is read."""
        return list_images(self.messages[: self.trained[-1]])


def read_conversation(row: Row) -> Conversation:
    """The conversation of a `PromptCompletion` or of `TrainedTurns`. Raises DataError where the row is neither, no message of it
    is to be learned, or its images are not those that its messages show."""
    if _list_columns(PromptCompletion) <= row.keys():
        reply = cast(PromptCompletion, row)
        messages, start, train_turns = [*reply["prompt"], *reply["completion"]], len(reply["prompt"]), None
        digests = [digest] if (digest := reply.get("prompt_digest")) else None
    elif _list_columns(TrainedTurns) <= row.keys():
        turns = cast(TrainedTurns, row)
        messages, start, train_turns = turns["messages"], turns["num_prompt_messages"], turns["train_turns"]
        digests = turns.get("prompt_digests")
    else:
        raise DataError(
            f"a training row has the columns {sorted(row)}; expected prompt and completion, "
            "or messages, num_prompt_messages and train_turns. Run: python jobs/format.py"
        )
    replies = [place for place in range(start, len(messages)) if messages[place]["role"] == "assistant"]
    for name, values in (("train_turns", train_turns), ("prompt_digests", digests)):
        if values is not None and len(values) != len(replies):
            raise DataError(f"{name} has {len(values)} values for {len(replies)} assistant messages. Run: python jobs/format.py")
    trained = tuple(place for number, place in enumerate(replies) if train_turns is None or train_turns[number])
    if not trained:
        raise DataError("a training row has no assistant message to learn. Run: python jobs/format.py")
    shown = cast(ShownRow, row)
    tools = shown.get("tools")
    return Conversation(
        _name_images(messages, shown.get("images") or []),
        trained,
        _parse_tools(tools) if isinstance(tools, str) else tools,
        shown.get("weight", 1.0),
        digests[replies.index(trained[-1])] if digests else "",
    )


def _parse_tools(text: str) -> list[dict[str, Any]]:
    try:
        return parse_json(text)
    except ValueError as error:
        raise DataError(f"the tools of a training row are no JSON ({error}). Run: python jobs/format.py") from None


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
