"""Formats in which a model writes its actions: one module each, and one line in `registry`."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from drag_ray.engine.generate import UNFINISHED_REASONING, split_reasoning
from drag_ray.tools.function import Function
from drag_ray.tools.search import TOOL as SEARCH
from drag_ray.types import ActionKind, Evidence


@dataclass(frozen=True, slots=True)
class Action:
    """The content of one reply: a tool's `arguments` are JSON, not yet checked. `problem` says why it is invalid."""

    kind: ActionKind
    reasoning: str = ""
    query: str = ""
    answer: str = ""
    citations: tuple[Evidence, ...] = ()
    tool: str = ""
    arguments: str = ""
    problem: str = ""


class ActionProtocol(ABC):
    """A format in which a model writes its actions."""

    name: str
    """what `agent.protocol` and trajectories call it"""
    summary: str
    """what an action looks like, for the option's text"""
    stop: tuple[str, ...]
    """strings that end a reply, so that it holds one action"""
    shows_functions: bool = False
    """whether the chat template shows the agent's functions to the model; otherwise the system prompt says it all"""
    observation_role: Literal["user", "tool"] = "user"
    """who speaks when the model is told what its action led to"""
    final_request: str
    """asks for the answer in the last reply"""

    def list_functions(self, functions: Sequence[Function] = (SEARCH,)) -> tuple[dict[str, Any], ...]:
        """The agent's functions as the chat template shows them, in OpenAI's form: these, and giving the answer; none where the
        system prompt says it all."""
        return ()

    @abstractmethod
    def instructions(self, thinking: bool, wanted: str, *, may_answer: bool, functions: Sequence[Function] = (SEARCH,)) -> str:
        """Instructions for writing an action, for the system prompt.

        Args:
            thinking: invite to think before.
            wanted: what a search is to hold, such as "words to search for".
            may_answer: whether a reply can be an answer, too.
            functions: of the agent, `search` among them.
        """

    def parse(self, text: str, functions: Sequence[Function] = (SEARCH,)) -> Action:
        """Read a reply. Never raises: what cannot be read is an INVALID action. Of several actions the first one counts. A search
        may be empty.

        The arguments of a call of a tool are read and not checked, which is for the tool to do.
        """
        reasoning, rest = split_reasoning(text)
        if rest is None:
            return Action(ActionKind.INVALID, reasoning, problem=UNFINISHED_REASONING)
        return self._read(reasoning, rest, functions)

    @abstractmethod
    def _read(self, reasoning: str, rest: str, functions: Sequence[Function]) -> Action:
        """The action of a reply; reasoning that is not marked stands before it in the rest."""

    @abstractmethod
    def render_search(self, query: str, reasoning: str = "") -> str:
        """A reply that searches."""

    @abstractmethod
    def render_answer(self, answer: str, citations: tuple[Evidence, ...] = (), reasoning: str = "") -> str:
        """A reply that answers."""


def begin_in_tags(thinking: bool) -> str:
    """The beginning of instructions for actions in tags."""
    return "Think first, inside <think></think>. Then give" if thinking else "Reply with"


def collapse_spaces(text: str) -> str:
    """The text with each run of white space as one blank."""
    return " ".join(text.split())
