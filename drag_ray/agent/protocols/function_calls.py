"""Actions as function calls, for models that were trained to call functions (Qwen, Hermes)."""

from collections.abc import Sequence
from typing import Any

from drag_ray.agent.protocols import Action, ActionProtocol, collapse_spaces
from drag_ray.agent.protocols.written_call import CallError, WrittenCall, find_call, read_tool_call, render_call
from drag_ray.engine.generate import render_reasoning
from drag_ray.tools.function import Function
from drag_ray.tools.search import ANSWER
from drag_ray.tools.search import TOOL as SEARCH
from drag_ray.types import ActionKind, Evidence


class FunctionCallsProtocol(ActionProtocol):
    """One `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` a reply, the Hermes form that Qwen's templates show.

    The call is read from the reply itself. A forced tool choice would make a thinking model skip its reasoning, and
    an engine's own parser would hide what the model really wrote. A reply ends with its first call.
    """

    name = "tools"
    summary = "calls of functions that the chat template shows"
    stop = ("</tool_call>",)
    shows_functions = True
    observation_role = "tool"
    final_request = f"This is your last reply: give your answer now, with {ANSWER.name}."

    def list_functions(self, functions: Sequence[Function] = (SEARCH,)) -> tuple[dict[str, Any], ...]:
        return tuple(function.describe() for function in (*functions, ANSWER))

    def instructions(self, thinking: bool, wanted: str, *, may_answer: bool, functions: Sequence[Function] = (SEARCH,)) -> str:
        *names, last = [function.name for function in (*functions, *((ANSWER,) if may_answer else ()))]
        choice = f"{', '.join(names)} or {last}" if names else last
        return f"{'Think first. Then call' if thinking else 'Call'} exactly one function: {choice}. A query holds {wanted}."

    def _read(self, reasoning: str, rest: str, functions: Sequence[Function]) -> Action:
        try:
            call = find_call(rest)
            return _to_action(call, reasoning or rest[: call.start].strip(), functions)
        except CallError as error:
            reasoning = reasoning or (rest.partition("<tool_call>")[0].strip() if "<tool_call>" in rest else "")
            return Action(ActionKind.INVALID, reasoning, problem=str(error))

    def render_search(self, query: str, reasoning: str = "") -> str:
        return render_reasoning(reasoning) + render_call(SEARCH.name, {"query": query})

    def render_answer(self, answer: str, citations: tuple[Evidence, ...] = (), reasoning: str = "") -> str:
        cited = [{"file": item.file, "page": item.page_number} for item in citations]
        return render_reasoning(reasoning) + render_call(ANSWER.name, {"answer": answer, "citations": cited})


def _to_action(call: WrittenCall, reasoning: str, functions: Sequence[Function]) -> Action:
    arguments = call.arguments
    if call.name == SEARCH.name:
        query = arguments.get("query")
        if not isinstance(query, str):
            raise CallError(f"{SEARCH.name} needs a query, a text")
        return Action(ActionKind.SEARCH, reasoning, query=collapse_spaces(query))
    if call.name == ANSWER.name:
        answer = arguments.get("answer")
        if isinstance(answer, list):
            answer = ", ".join(str(item) for item in answer)
        if not isinstance(answer, str | int | float):
            raise CallError(f"{ANSWER.name} needs an answer, a text")
        return Action(ActionKind.ANSWER, reasoning, answer=collapse_spaces(str(answer)), citations=_read_citations(arguments))
    return read_tool_call(call, reasoning, functions)


def _read_citations(arguments: dict[str, Any]) -> tuple[Evidence, ...]:
    """Citations that can be read; a broken one is worth nothing, and so is left out."""
    cited = arguments.get("citations")
    citations = []
    for item in cited if isinstance(cited, list) else []:
        file, page = (item.get("file"), item.get("page")) if isinstance(item, dict) else (None, None)
        if isinstance(file, str) and isinstance(page, int | str) and str(page).isdecimal() and len(str(page)) < 10:
            citations.append(Evidence(file.strip(), int(page)))
    return tuple(citations)
