"""The chunks of a run that no engine has taken yet. Engines take the next one when they have room for it."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

from drag_ray.rollout.plan import Chunk
from drag_ray.rollout.room import Room


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


@asynccontextmanager
async def take_chunk(
    ticket: int, take: Callable[[int], Awaitable[Chunk | None]], room: Room, chunk_rollouts: int
) -> AsyncIterator[Chunk | None]:
    """The chunk of a ticket, once an engine has room for it, and that room within the context.

    The room is kept while the chunk is on its way, which to an engine with a busy event loop takes a while, so that as many
    chunks come at the same time as there is room for.

    Args:
        ticket: the number of the ticket.
        take: `Pile.take`, from afar.
        room: the engine's.
        chunk_rollouts: rollouts that a chunk begins with, on average.
    """
    coming = [f"{number} of ticket {ticket}" for number in range(chunk_rollouts)]
    try:
        await room.wait(coming)
        chunk = await take(ticket)
        if chunk is None:
            room.open()  # the other tickets find nothing either
        yield chunk
    finally:
        room.leave(coming)
