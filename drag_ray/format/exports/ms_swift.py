"""ms-swift's messages. It reads of each reply whether it is learned:

{"messages": [{"role": "user", "content": "Question: ..."},
              {"role": "assistant", "content": "<search>rotor</search>", "loss": true}]}
"""

from collections.abc import Collection, Iterator
from typing import NotRequired, Required, TypedDict

from drag_ray.engine.generate import Message, join_text
from drag_ray.format.columns import Example, PreferenceExample, RewardedExample, Row, ScoredExample, SupervisedExample
from drag_ray.format.exporter import Exporter


class SwiftMessage(TypedDict):
    """A message; a reply says whether it is learned."""

    role: str
    content: str
    loss: NotRequired[bool]


class SwiftRow(TypedDict, total=False):
    """A row; the columns after the first are there where a row has something to say in them."""

    messages: Required[list[SwiftMessage]]
    rejected_response: str
    label: float
    """the score of the reply"""
    recorded_reply: str
    """what the policy replied once; ms-swift hands it to reward functions, as `reward`"""
    reward: float
    images: list[str]
    tools: str


def convert(example: Example, row: Row) -> Iterator[SwiftRow]:
    """The row of an example."""
    exported: SwiftRow
    match example:
        case SupervisedExample(messages, learned):
            exported = _to_swift(messages, learned)
        case PreferenceExample(prompt, chosen, rejected):
            exported = {**_to_swift_reply(prompt, chosen), "rejected_response": join_text(rejected)}
        case ScoredExample(prompt, reply, score):
            exported = {**_to_swift_reply(prompt, reply), "label": score}
        case RewardedExample(prompt, reply, reward):
            exported = {**_to_swift(prompt), "recorded_reply": join_text(reply), "reward": reward}
    if images := row.get("images"):
        exported["images"] = images
    if tools := row.get("tools"):
        exported["tools"] = tools
    yield exported


def _to_swift_reply(prompt: list[Message], reply: Message) -> SwiftRow:
    return _to_swift([*prompt, reply], [len(prompt)])


def _to_swift(messages: list[Message], learned: Collection[int] = ()) -> SwiftRow:
    return {"messages": [_to_message(message, place in learned) for place, message in enumerate(messages)]}


def _to_message(message: Message, is_learned: bool) -> SwiftMessage:
    plain: SwiftMessage = {"role": message["role"], "content": join_text(message)}
    return {**plain, "loss": is_learned} if message["role"] == "assistant" else plain


EXPORTER = Exporter(convert)
