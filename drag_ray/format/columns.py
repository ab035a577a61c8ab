"""The columns of training rows: their names are TRL's, their Arrow types follow from the types of the rows; and the example in a
row, whatever its columns are: the few kinds that trainers know."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypedDict, get_type_hints

import pyarrow as pa

from drag_ray.engine.generate import Message

MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
"""A list of messages."""

MESSAGES_WITH_IMAGES = pa.list_(
    pa.struct([("role", pa.string()), ("content", pa.list_(pa.struct([("type", pa.string()), ("text", pa.string())])))])
)
"""A list of messages of text parts and image parts; the images themselves are named in order in the column `images`."""

_ARROW_TYPES: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int32(),
    float: pa.float64(),
    bool: pa.bool_(),
    bool | None: pa.bool_(),
    list[int]: pa.list_(pa.int32()),
    list[float]: pa.list_(pa.float64()),
    list[bool]: pa.list_(pa.bool_()),
    list[str]: pa.list_(pa.string()),
    list[Message]: MESSAGES,
}


class Row(TypedDict, total=False):
    """The columns that a row of any format has where the layout of its run asks for it (see `layout`).

    The columns of a format itself are declared in a class that inherits from this one; each of its rows has all of them.
    """

    images: list[str]
    """keys of the images that its messages show, in order"""
    tools: str | None
    """functions that its protocol shows to the model, as JSON"""


def to_schema(row: type[Row]) -> pa.Schema:
    """The Arrow schema of the columns that every row of a type has, in the order in which they are declared."""
    columns = get_type_hints(row)
    return pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in columns.items() if name in row.__required_keys__])


def get_input_column(columns: Iterable[str]) -> str:
    """The column of what the model is shown: a prompt, or a conversation whose replies are learned in their places."""
    return "prompt" if "prompt" in columns else "messages"


@dataclass(frozen=True)
class SupervisedExample:
    """A conversation of which the replies at the positions `learned`, in rising order, are learned."""

    messages: list[Message]
    learned: list[int]


@dataclass(frozen=True)
class PreferenceExample:
    """Two replies to one prompt, of which one is better."""

    prompt: list[Message]
    chosen: Message
    rejected: Message


@dataclass(frozen=True)
class ScoredExample:
    """A reply with the score that a reward model is to give it."""

    prompt: list[Message]
    reply: Message
    score: float


@dataclass(frozen=True)
class RewardedExample:
    """A prompt to reply to anew, with what the policy replied to it once and what that earned."""

    prompt: list[Message]
    recorded_reply: Message
    reward: float


Example = SupervisedExample | PreferenceExample | ScoredExample | RewardedExample


class ReplyRow(Row):
    """A prompt and the reply to learn."""

    prompt: list[Message]
    completion: list[Message]
    question_id: str
    trajectory_id: str
    score: float
    """gain of the query over the question"""
    weight: float
    """what the row counts in the loss"""
    prompt_digest: str
    """of the prompt as the engine had it, with its images (`engine.prompt_digest`); empty where that is not known"""


class ConversationRow(Row):
    """A conversation and which of its replies are learned."""

    messages: list[Message]
    num_prompt_messages: int
    train_turns: list[bool]
    """for each message of the assistant from `num_prompt_messages` on whether it is learned"""
    question_id: str
    trajectory_id: str
    score: float
    """gain of the best query over the question"""
    weight: float
    """what the row counts in the loss"""
    prompt_digests: list[str]
    """for each of these messages that of its prompt as the engine had it (`engine.prompt_digest`); empty where it is not known"""


def reply_to_example(row: ReplyRow) -> SupervisedExample:
    """The prompt, then the reply, which is learned."""
    return SupervisedExample([*row["prompt"], *row["completion"]], [len(row["prompt"])])


def conversation_to_example(row: ConversationRow) -> SupervisedExample:
    """The conversation with the places of the replies that are learned."""
    messages = row["messages"]
    replies = [place for place in range(row["num_prompt_messages"], len(messages)) if messages[place]["role"] == "assistant"]
    return SupervisedExample(messages, [place for place, flag in zip(replies, row["train_turns"], strict=True) if flag])
