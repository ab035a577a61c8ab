"""Functions in the words of a conversation: how the chat template behind an endpoint shows functions is not known.

The form is that of the templates of Hermes and Qwen, so that a model behind an endpoint is shown what one of these is here, and
writes its calls in the same way. OpenAI's own `tools` are not used: they would hide what the model wrote, and take no images.
"""

import json
from collections.abc import Sequence
from typing import Any

from drag_ray.engine.generate import Message

_SHOWN = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{functions}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
_OPENED, _CLOSED = "<tool_response>\n", "\n</tool_response>"


def write_functions(messages: Sequence[Message], functions: Sequence[dict[str, Any]]) -> list[Message]:
    """A conversation whose system prompt shows the functions, and in which the user tells what a call returned.

    Args:
        messages: the first one is the system prompt, a text, if there is one.
        functions: in OpenAI's form; without any the messages stay as they are.
    """
    if not functions:
        return list(messages)
    has_system = bool(messages) and messages[0]["role"] == "system"
    system = messages[0]["content"] if has_system else ""
    shown = _SHOWN.format(functions="\n".join(json.dumps(function, ensure_ascii=False) for function in functions))
    opening = {"role": "system", "content": f"{system}\n\n{shown}" if system else shown}
    return [opening, *map(_tell, messages[has_system:])]


def _tell(message: Message) -> Message:
    if message["role"] != "tool":
        return message
    content = message["content"]
    if isinstance(content, str):
        return {"role": "user", "content": f"{_OPENED}{content}{_CLOSED}"}
    return {"role": "user", "content": [{"type": "text", "text": _OPENED}, *content, {"type": "text", "text": _CLOSED}]}
