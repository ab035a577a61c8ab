"""The order of candidates in tags, as in V-Retrver: `<think>why</think><answer>[3, 1, 2]</answer>`.

An agent with tools may call them before, a call a reply: `<think>why</think><tool_call>{"name": ...}</tool_call>`.
"""

import re
from collections.abc import Sequence
from typing import Any

from drag_ray.agent.protocols import Action, ActionProtocol, begin_in_tags
from drag_ray.agent.protocols.written_call import CallError, find_call, read_tool_call
from drag_ray.engine.generate import render_reasoning
from drag_ray.tools.function import Function
from drag_ray.tools.search import TOOL as SEARCH
from drag_ray.types import ActionKind, Evidence

_NUMBERS = re.compile(r"\s*\[\s*(?:[0-9]{1,9}\s*(?:,\s*[0-9]{1,9}\s*)*,?\s*)?\]\s*")
_NUMBER = re.compile(r"[0-9]+")


class RankingProtocol(ActionProtocol):
    """`<think>why</think>`, then the numbers of the candidates, best first, in `<answer>[3, 1, 2]</answer>`, or a call."""

    name = "ranking"
    summary = "<think>, and numbers in <answer>"
    stop = ("</answer>", "</tool_call>")
    shows_functions = True
    final_request = "This is your last reply: give the order of the candidates now, inside <answer></answer>."

    def list_functions(self, functions: Sequence[Function] = (SEARCH,)) -> tuple[dict[str, Any], ...]:
        """The agent's tools; none where it has none, as nothing is searched."""
        return tuple(function.describe() for function in _list_tools(functions))

    def instructions(self, thinking: bool, wanted: str, *, may_answer: bool, functions: Sequence[Function] = (SEARCH,)) -> str:
        form = f"{begin_in_tags(thinking)} {wanted}, best first, in this form:\n<answer>[3, 1, 2]</answer>"
        names = [function.name for function in _list_tools(functions)]
        return f"{form}\nTo look closer before you do, call one function a reply: {', '.join(names)}." if names else form

    def _read(self, reasoning: str, rest: str, functions: Sequence[Function]) -> Action:
        """As of `ActionProtocol`; the query of the action is the order."""
        before, opened, after = rest.partition("<answer>")
        answer, closed, _ = after.partition("</answer>")
        tools = _list_tools(functions)
        if tools and "<tool_call>" in (before if closed else rest):
            return _read_call(rest, reasoning, tools)
        if not closed:
            problem = "<answer> is not closed" if opened else "no <answer> in the reply"
            return Action(ActionKind.INVALID, reasoning, problem=problem)
        order = read_order(answer)
        if order is None:
            problem = f"<answer> holds {answer.strip()[:60]!r}, expected numbers as in [3, 1, 2]"
            return Action(ActionKind.INVALID, reasoning, problem=problem)
        return Action(ActionKind.SEARCH, reasoning or before.strip(), query=write_order(order))

    def render_search(self, query: str, reasoning: str = "") -> str:
        return render_reasoning(reasoning) + f"<answer>{query}</answer>"

    def render_answer(self, answer: str, citations: tuple[Evidence, ...] = (), reasoning: str = "") -> str:
        return self.render_search(answer, reasoning)  # the order is the answer


def _list_tools(functions: Sequence[Function]) -> list[Function]:
    return [function for function in functions if function.name != SEARCH.name]


def _read_call(text: str, reasoning: str, tools: Sequence[Function]) -> Action:
    try:
        call = find_call(text)
        return read_tool_call(call, reasoning or text[: call.start].strip(), tools)
    except CallError as error:
        return Action(ActionKind.INVALID, reasoning, problem=str(error))


def read_order(text: str) -> list[int] | None:
    """The numbers of a list such as `[3, 1, 2]`; None for anything else. The text is matched and never evaluated."""
    return [int(number) for number in _NUMBER.findall(text)] if _NUMBERS.fullmatch(text) else None


def write_order(order: Sequence[int]) -> str:
    """As `read_order` reads it."""
    return f"[{', '.join(map(str, order))}]"
