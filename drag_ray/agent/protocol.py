"""What the model writes and what it means: the two directions of the action format."""

import re
from dataclasses import dataclass
from typing import Protocol

from drag_ray.errors import ConfigError
from drag_ray.types import ActionKind, Evidence


@dataclass(frozen=True, slots=True)
class Action:
    """What was read from one reply. `problem` says why it is invalid."""

    kind: ActionKind
    reasoning: str = ""
    query: str = ""
    answer: str = ""
    citations: tuple[Evidence, ...] = ()
    problem: str = ""


class ActionProtocol(Protocol):
    """A format in which a model writes its actions."""

    stop: tuple[str, ...]
    """strings that end a reply"""

    def instructions(self, thinking: bool) -> str:
        """How to write an action, for the system prompt."""
        ...

    def parse(self, text: str) -> Action:
        """Read a reply. Never raises: what cannot be read is an INVALID action."""
        ...

    def render_search(self, query: str, reasoning: str = "") -> str:
        """A reply that searches."""
        ...

    def render_answer(self, answer: str, citations: tuple[Evidence, ...] = (), reasoning: str = "") -> str:
        """A reply that answers."""
        ...


class TagsProtocol:
    """`<think>why</think>`, then `<search>words</search>` or `<answer>text <cite>file#page</cite></answer>`."""

    stop: tuple[str, ...] = ("</search>", "</answer>")

    _THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)
    _ACTION = re.compile(r"<(search|answer)>(.*?)</\1>", re.DOTALL)
    _OPENED = re.compile(r"<(search|answer)>")
    _CITE = re.compile(r"<cite>(.*?)#(\d{1,9})</cite>", re.DOTALL)

    def instructions(self, thinking: bool) -> str:
        think = "Think first, inside <think></think>. Then give" if thinking else "Reply with"
        return (
            f"{think} exactly one action:\n"
            "<search>words to search for</search>\n"
            "<answer>the answer <cite>file#page</cite></answer>"
        )

    def parse(self, text: str) -> Action:
        reasoning, rest = self._split_reasoning(text)
        found = self._ACTION.search(rest)
        if found is None:
            opened = self._OPENED.search(rest)
            problem = f"<{opened[1]}> is not closed" if opened else "neither <search> nor <answer> in the reply"
            return Action(ActionKind.INVALID, reasoning, problem=problem)
        kind, body = found[1], found[2]
        if not reasoning:
            reasoning = rest[: found.start()].strip()
        if kind == "answer":
            citations = tuple(Evidence(file.strip(), int(page)) for file, page in self._CITE.findall(body))
            return Action(ActionKind.ANSWER, reasoning, answer=_squeeze(self._CITE.sub("", body)), citations=citations)
        query = _squeeze(body)
        if not query:
            return Action(ActionKind.INVALID, reasoning, problem="<search> is empty")
        return Action(ActionKind.SEARCH, reasoning, query=query)

    def render_search(self, query: str, reasoning: str = "") -> str:
        return self._render_reasoning(reasoning) + f"<search>{query}</search>"

    def render_answer(self, answer: str, citations: tuple[Evidence, ...] = (), reasoning: str = "") -> str:
        cites = "".join(f" <cite>{item.file}#{item.page_number}</cite>" for item in citations)
        return self._render_reasoning(reasoning) + f"<answer>{answer}{cites}</answer>"

    def _split_reasoning(self, text: str) -> tuple[str, str]:
        """Reasoning and the rest. A template may open <think> itself, so that only its end is in the reply."""
        found = self._THINK.search(text)
        if found:
            return found[1].strip(), text[: found.start()] + text[found.end() :]
        before, end_tag, after = text.partition("</think>")
        return (before.strip(), after) if end_tag else ("", text)

    @staticmethod
    def _render_reasoning(reasoning: str) -> str:
        return f"<think>{reasoning}</think>\n" if reasoning else ""


def _squeeze(text: str) -> str:
    return " ".join(text.split())


_PROTOCOLS: dict[str, ActionProtocol] = {"tags": TagsProtocol()}


def get_protocol(name: str) -> ActionProtocol:
    """The protocol of this name.

    Raises:
        ConfigError: there is none.
    """
    try:
        return _PROTOCOLS[name]
    except KeyError:
        raise ConfigError(f"agent.protocol {name!r}: unknown. Known protocols: {', '.join(_PROTOCOLS)}.") from None
