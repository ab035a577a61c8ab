"""Rows of supervised formats: a reply to a prompt, or a conversation some of whose replies are learned."""

from drag_ray.engine.generate import Message
from drag_ray.format.columns import Row
from drag_ray.format.examples import SupervisedExample


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
