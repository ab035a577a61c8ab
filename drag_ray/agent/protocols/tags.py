"""Actions in tags, which any model can be taught to write."""

import re
from collections.abc import Sequence

from drag_ray.agent.protocols import Action, ActionProtocol, begin_in_tags, collapse_spaces
from drag_ray.engine.generate import render_reasoning
from drag_ray.tools.function import Function
from drag_ray.tools.search import TOOL as SEARCH
from drag_ray.types import ActionKind, Evidence


class TagsProtocol(ActionProtocol):
    """`<think>why</think>`, then `<search>words</search>` or `<answer>text <cite>file#page</cite></answer>`."""

    name = "tags"
    summary = "<think>, <search> and <answer>"
    stop = ("</search>", "</answer>")
    final_request = "This is your last reply: give your answer now, inside <answer></answer>."

    _OPENED = re.compile(r"<(search|answer)>")
    _CITE = re.compile(r"<cite>(.*?)(?:</cite>|(?=<cite>)|\Z)|</cite>", re.DOTALL)
    """A citation ends at its own tag, or where another one begins."""
    _PAGE = re.compile(r"(.+)#([0-9]{1,9})", re.DOTALL)

    def instructions(self, thinking: bool, wanted: str, *, may_answer: bool, functions: Sequence[Function] = (SEARCH,)) -> str:
        forms = [f"<search>{wanted}</search>"]
        if may_answer:
            forms.append("<answer>the answer <cite>file#page</cite></answer>")
        return "\n".join([f"{begin_in_tags(thinking)} exactly one action:", *forms])

    def _read(self, reasoning: str, rest: str, functions: Sequence[Function]) -> Action:
        opened = list(self._OPENED.finditer(rest))
        last_ends = {kind: rest.rfind(f"</{kind}>") for kind in ("search", "answer")}
        found = next((tag for tag in opened if tag.end() <= last_ends[tag[1]]), None)
        if found is None:
            problem = f"<{opened[0][1]}> is not closed" if opened else "neither <search> nor <answer> in the reply"
            return Action(ActionKind.INVALID, reasoning, problem=problem)
        body = rest[found.end() : rest.index(f"</{found[1]}>", found.end())]
        reasoning = reasoning or rest[: found.start()].strip()
        if found[1] == "search":
            return Action(ActionKind.SEARCH, reasoning, query=collapse_spaces(body))
        cited = [self._PAGE.fullmatch(text.strip()) for text in self._CITE.findall(body)]
        citations = tuple(Evidence(page[1].strip(), int(page[2])) for page in cited if page)
        return Action(ActionKind.ANSWER, reasoning, answer=collapse_spaces(self._CITE.sub("", body)), citations=citations)

    def render_search(self, query: str, reasoning: str = "") -> str:
        return render_reasoning(reasoning) + f"<search>{query}</search>"

    def render_answer(self, answer: str, citations: tuple[Evidence, ...] = (), reasoning: str = "") -> str:
        cites = "".join(f" <cite>{item.file}#{item.page_number}</cite>" for item in citations)
        return render_reasoning(reasoning) + f"<answer>{answer}{cites}</answer>"
