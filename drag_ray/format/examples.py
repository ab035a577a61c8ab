"""The example in a training row, whatever its columns are: the few kinds that trainers know; rows of supervised formats."""

from dataclasses import dataclass

from drag_ray.engine.generate import Message
from drag_ray.format.columns import Row


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
