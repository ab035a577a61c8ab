"""Actions as function calls, for models that were trained to call functions (Qwen, Hermes)."""

import json
import re
from typing import Any, Literal

from drag_ray.agent.action import Action, collapse_spaces
from drag_ray.engine.reasoning import UNFINISHED_REASONING, render_reasoning, split_reasoning
from drag_ray.types import ActionKind, Evidence

SEARCH_NAME = "search_documents"
ANSWER_NAME = "provide_answer"


class _CallError(ValueError):
    """A call that cannot be carried out; the message is for the model."""


class FunctionCallsProtocol:
    """One `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` a reply, the Hermes form that Qwen's templates show.

    The call is read from the reply itself. A forced tool choice would make a thinking model skip its reasoning, and
    an engine's own parser would hide what the model really wrote. A reply ends with its first call.
    """

    name: str = "tools"
    summary: str = "calls of functions that the chat template shows"
    stop: tuple[str, ...] = ("</tool_call>",)
    observation_role: Literal["user", "tool"] = "tool"
    final_request: str = f"This is your last reply: give your answer now, with {ANSWER_NAME}."
    tools: tuple[dict[str, Any], ...] = (
        {
            "type": "function",
            "function": {
                "name": SEARCH_NAME,
                "description": "Search the document collection and see the best pages.",
                "parameters": {
                    "type": "object",
                    "properties": {"query": {"type": "string", "description": "Words that the right page is likely to contain."}},
                    "required": ["query"],
                },
            },
        },
        {
            "type": "function",
            "function": {
                "name": ANSWER_NAME,
                "description": "Give the final answer to the question.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "answer": {"type": "string", "description": "The answer, as short as possible."},
                        "citations": {
                            "type": "array",
                            "description": "The pages that the answer is taken from.",
                            "items": {
                                "type": "object",
                                "properties": {"file": {"type": "string"}, "page": {"type": "integer"}},
                                "required": ["file", "page"],
                            },
                        },
                    },
                    "required": ["answer"],
                },
            },
        },
    )

    _CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)

    def instructions(self, thinking: bool, wanted: str, *, may_answer: bool) -> str:
        """What the chat template does not say of the functions."""
        functions = f"{SEARCH_NAME} or {ANSWER_NAME}" if may_answer else SEARCH_NAME
        return f"{'Think first. Then call' if thinking else 'Call'} exactly one function: {functions}. A query holds {wanted}."

    def parse(self, text: str) -> Action:
        """Read a reply; never raises. Of several calls the first one counts."""
        reasoning, rest = split_reasoning(text)
        if rest is None:
            return Action(ActionKind.INVALID, reasoning, problem=UNFINISHED_REASONING)
        found = self._CALL.search(rest)
        if found is None:
            problem = "<tool_call> is not closed" if "<tool_call>" in rest else "no <tool_call> in the reply"
            return Action(ActionKind.INVALID, reasoning, problem=problem)
        if not reasoning:
            reasoning = rest[: found.start()].strip()
        try:
            return _read_call(found[1], reasoning)
        except _CallError as error:
            return Action(ActionKind.INVALID, reasoning, problem=str(error))

    def render_search(self, query: str, reasoning: str = "") -> str:
        """A reply that searches."""
        return render_reasoning(reasoning) + _render_call(SEARCH_NAME, {"query": query})

    def render_answer(self, answer: str, citations: tuple[Evidence, ...] = (), reasoning: str = "") -> str:
        """A reply that answers."""
        cited = [{"file": item.file, "page": item.page_number} for item in citations]
        return render_reasoning(reasoning) + _render_call(ANSWER_NAME, {"answer": answer, "citations": cited})


def _render_call(name: str, arguments: dict[str, Any]) -> str:
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


def _read_call(text: str, reasoning: str) -> Action:
    call = _read_object(text, "the call")
    arguments = call.get("arguments", {})
    if isinstance(arguments, str):  # OpenAI's form of the same
        arguments = _read_object(arguments, "arguments")
    if not isinstance(arguments, dict):
        raise _CallError("arguments is not a JSON object")
    if call.get("name") == SEARCH_NAME:
        query = arguments.get("query")
        if not isinstance(query, str):
            raise _CallError(f"{SEARCH_NAME} needs a query, a text")
        return Action(ActionKind.SEARCH, reasoning, query=collapse_spaces(query))
    if call.get("name") == ANSWER_NAME:
        answer = arguments.get("answer")
        if isinstance(answer, list):
            answer = ", ".join(str(item) for item in answer)
        if not isinstance(answer, str | int | float):
            raise _CallError(f"{ANSWER_NAME} needs an answer, a text")
        return Action(ActionKind.ANSWER, reasoning, answer=collapse_spaces(str(answer)), citations=_read_citations(arguments))
    raise _CallError(f"there is no function {call.get('name')!r}")


def _read_object(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise _CallError(f"{what} is not JSON") from None
    if not isinstance(value, dict):
        raise _CallError(f"{what} is not a JSON object")
    return value


def _read_citations(arguments: dict[str, Any]) -> tuple[Evidence, ...]:
    """Citations that can be read; a broken one is worth nothing, and so is left out."""
    cited = arguments.get("citations")
    citations = []
    for item in cited if isinstance(cited, list) else []:
        file, page = (item.get("file"), item.get("page")) if isinstance(item, dict) else (None, None)
        if isinstance(file, str) and isinstance(page, int | str) and str(page).isdecimal() and len(str(page)) < 10:
            citations.append(Evidence(file.strip(), int(page)))
    return tuple(citations)
