"""What the model writes and what it means: the two directions of an action format."""

from typing import Any, Literal, Protocol

from drag_ray.agent.action import Action
from drag_ray.types import Evidence


class ActionProtocol(Protocol):
    """A format in which a model writes its actions."""

    name: str
    """what `agent.protocol` and trajectories call it"""
    summary: str
    """what an action looks like, for the option's text"""
    stop: tuple[str, ...]
    """strings that end a reply, so that it holds one action"""
    tools: tuple[dict[str, Any], ...]
    """functions that the chat template shows to the model, in OpenAI's form; none if the system prompt says it all"""
    observation_role: Literal["user", "tool"]
    """who speaks when the model is told what its action led to"""
    final_request: str
    """asks for the answer in the last reply"""

    def instructions(self, thinking: bool, wanted: str, *, may_answer: bool) -> str:
        """How to write an action, for the system prompt.

        Args:
            thinking: invite to think before.
            wanted: what a search is to hold, such as "words to search for".
            may_answer: whether a reply can be an answer, too.
        """
        ...

    def parse(self, text: str) -> Action:
        """Read a reply. Never raises: what cannot be read is an INVALID action. A search may be empty."""
        ...

    def render_search(self, query: str, reasoning: str = "") -> str:
        """A reply that searches."""
        ...

    def render_answer(self, answer: str, citations: tuple[Evidence, ...] = (), reasoning: str = "") -> str:
        """A reply that answers."""
        ...
