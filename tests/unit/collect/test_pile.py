"""The pile: every chunk is taken once, and a ticket that comes again gets what it had."""

from drag_ray.collect.pile import Pile
from drag_ray.collect.plan import Chunk


def test_each_ticket_takes_the_next_chunk_and_keeps_it() -> None:
    chunks = [Chunk(number, [], {}) for number in range(2)]
    pile = Pile(chunks)
    assert [pile.take(7), pile.take(3)] == chunks
    assert pile.take(7) == chunks[0]
    assert pile.take(1) is None
    assert pile.take(1) is None
    assert pile.take(3) == chunks[1]


def test_a_cleared_pile_gives_only_what_was_taken_before() -> None:
    chunks = [Chunk(number, [], {}) for number in range(3)]
    pile = Pile(chunks)
    pile.take(0)
    pile.clear()
    assert pile.take(1) is None
    assert pile.take(0) == chunks[0]
