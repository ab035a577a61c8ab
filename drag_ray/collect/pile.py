"""The chunks of a run that no engine has taken yet. Engines take the next one when they have room for it."""

from collections import deque
from collections.abc import Iterable

from drag_ray.collect.plan import Chunk


class Pile:
    """Gives each ticket a chunk, in their order, as long as there are any.

    Who handed out the chunks themselves would decide at the start which engine gets what, and the engine whose rollouts take
    longer than the others' would be the last by far. A ticket that comes again has lost its engine, and gets the same chunk.
    """

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self._left = deque(chunks)
        self._taken: dict[int, Chunk | None] = {}

    def take(self, ticket: int) -> Chunk | None:
        """The chunk of a ticket; None if there was none left."""
        if ticket not in self._taken:
            self._taken[ticket] = self._left.popleft() if self._left else None
        return self._taken[ticket]

    def clear(self) -> None:
        """Leave nothing to take: the run has ended, perhaps by an error, and engines shall end too."""
        self._left.clear()
