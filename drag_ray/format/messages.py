"""Messages of training rows: prompts cut from recorded conversations, replies written by the policy's protocol."""

import json

import pyarrow as pa

from drag_ray.agent.protocol import get_protocol

Message = dict[str, str]

MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
"""The Arrow type of a list of messages, as TRL reads it."""


def cut_conversation(conversation: str, num_messages: int) -> list[Message]:
    """The first `num_messages` messages of a conversation recorded as JSON, with their role and content alone."""
    return [{"role": item["role"], "content": item["content"]} for item in json.loads(conversation)[:num_messages]]


def write_reply(protocol: str, query: str, reasoning: str = "") -> list[Message]:
    """The reply with which the policy asks `query`, in the words of its protocol."""
    return [{"role": "assistant", "content": get_protocol(protocol).render_search(query, reasoning)}]
