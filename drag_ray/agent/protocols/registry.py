"""The action formats that there are, and what each is: what the model writes and what it means."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from drag_ray.agent.protocols import Action
from drag_ray.agent.protocols.function_calls import FunctionCallsProtocol
from drag_ray.agent.protocols.ranking import RankingProtocol
from drag_ray.agent.protocols.tags import TagsProtocol
from drag_ray.errors import ConfigError
from drag_ray.tools.function import Function
from drag_ray.tools.search import TOOL as SEARCH
from drag_ray.types import Evidence


class ActionProtocol(Protocol):
    """A format in which a model writes its actions."""

    name: str
    """what `agent.protocol` and trajectories call it"""
    summary: str
    """what an action looks like, for the option's text"""
    stop: tuple[str, ...]
    """strings that end a reply, so that it holds one action"""
    shows_functions: bool
    """whether the chat template shows the agent's functions to the model; otherwise the system prompt says it all"""
    observation_role: Literal["user", "tool"]
    """who speaks when the model is told what its action led to"""
    final_request: str
    """asks for the answer in the last reply"""

    def list_functions(self, functions: Sequence[Function] = (SEARCH,)) -> tuple[dict[str, Any], ...]:
        """The agent's functions as the chat template shows them, in OpenAI's form: these, and giving the answer."""
        ...

    def instructions(self, thinking: bool, wanted: str, *, may_answer: bool, functions: Sequence[Function] = (SEARCH,)) -> str:
        """Instructions for writing an action, for the system prompt.

        Args:
            thinking: invite to think before.
            wanted: what a search is to hold, such as "words to search for".
            may_answer: whether a reply can be an answer, too.
            functions: of the agent, `search` among them.
        """
        ...

    def parse(self, text: str, functions: Sequence[Function] = (SEARCH,)) -> Action:
        """Read a reply. Never raises: what cannot be read is an INVALID action. A search may be empty.

        The arguments of a call of a tool are read and not checked, which is for the tool to do.
        """
        ...

    def render_search(self, query: str, reasoning: str = "") -> str:
        """A reply that searches."""
        ...

    def render_answer(self, answer: str, citations: tuple[Evidence, ...] = (), reasoning: str = "") -> str:
        """A reply that answers."""
        ...


_PROTOCOLS: tuple[ActionProtocol, ...] = (
    TagsProtocol(),
    FunctionCallsProtocol(),
)
PROTOCOLS = {protocol.name: protocol for protocol in _PROTOCOLS}
"""Those that an agent can be told to write its searches and answers in."""
KNOWN_PROTOCOLS = PROTOCOLS | {RankingProtocol.name: RankingProtocol()}
"""All of them: the task rerank has its own."""

if TYPE_CHECKING:
    ProtocolName = str
else:
    ProtocolName = Literal[tuple(PROTOCOLS)]


def get_protocol(name: str) -> ActionProtocol:
    """The protocol of this name. Raises ConfigError where there is none."""
    try:
        return KNOWN_PROTOCOLS[name]
    except KeyError:
        raise ConfigError(f"agent.protocol {name!r}: unknown. Known protocols: {', '.join(KNOWN_PROTOCOLS)}.") from None
