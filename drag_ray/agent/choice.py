"""A reply that was chosen of several by what they find."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from drag_ray.engine.generate import Generation, Request
from drag_ray.types import Hit


@dataclass(frozen=True, slots=True)
class Choice:
    """A reply that searches, with what choosing it took.

    Attributes:
        generation: the reply.
        hits: what is shown for it, to the agent's depth.
        num_drawn_tokens: of all replies that were drawn.
        search_s: what searching for all of them and choosing took, in seconds.
    """

    generation: Generation
    hits: tuple[Hit, ...]
    num_drawn_tokens: int
    search_s: float


ChooseFn = Callable[[Request, str], Awaitable[Choice]]
"""From the request for a reply, and the question, of which nothing else is known, to the reply. Raises what an engine does."""
