"""The pile: every chunk is taken once, and a ticket that comes again gets what it had."""

import asyncio

from drag_ray.rollout.pile import Pile, take_chunk
from drag_ray.rollout.plan import Chunk
from drag_ray.rollout.room import Room


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


def test_as_many_chunks_come_at_the_same_time_as_there_is_room_for() -> None:
    """Room for four rollouts: two chunks of two come at once, and the third as soon as a place is free."""
    pile, room = Pile([Chunk(number, [], {}) for number in range(3)]), Room(4)
    asked, begun, empty = list[int](), list[int](), list[int]()
    answers = asyncio.Semaphore(0)

    async def take(ticket: int) -> Chunk | None:
        asked.append(ticket)
        await answers.acquire()
        return pile.take(ticket)

    async def work(ticket: int) -> None:
        async with take_chunk(ticket, take, room, chunk_rollouts=2) as chunk:
            if chunk is None:
                empty.append(ticket)
                return
            begun.append(chunk.number)
            room.enter([f"{chunk.number} a", f"{chunk.number} b"])

    async def settle() -> None:
        for _ in range(8):
            await asyncio.sleep(0)

    async def run() -> None:
        tasks = [asyncio.create_task(work(ticket)) for ticket in range(6)]
        await settle()
        assert asked == [0, 1]
        answers.release()
        answers.release()
        await settle()
        assert (begun, asked) == ([0, 1], [0, 1])
        room.leave(["0 a"])
        answers.release()
        await settle()
        assert (begun, asked) == ([0, 1, 2], [0, 1, 2])
        for name in ("0 b", "1 a"):
            room.leave([name])
        await settle()
        assert asked == [0, 1, 2, 3]
        for _ in range(6):
            answers.release()
        await asyncio.wait_for(asyncio.gather(*tasks), timeout=5)
        assert empty == [3, 4, 5]

    asyncio.run(run())
