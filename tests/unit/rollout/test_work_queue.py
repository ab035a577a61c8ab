"""The work queue: every chunk is claimed once, a claim that comes again gets what it had, and no engine is given too much."""

import asyncio

from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.plan import Chunk
from drag_ray.rollout.work_queue import AdmissionControl, WorkQueue, claim_chunk, count_claims


async def settle() -> None:
    """Let everything go on that can."""
    for _ in range(8):
        await asyncio.sleep(0)


def test_each_claim_gets_the_next_chunk_and_keeps_it() -> None:
    chunks = [Chunk(number, [], {}) for number in range(2)]
    queue = WorkQueue(chunks)
    assert [queue.claim(7), queue.claim(3)] == chunks
    assert queue.claim(7) == chunks[0]
    assert queue.claim(1) is None
    assert queue.claim(1) is None
    assert queue.claim(3) == chunks[1]


def test_a_cleared_queue_gives_only_what_was_claimed_before() -> None:
    chunks = [Chunk(number, [], {}) for number in range(3)]
    queue = WorkQueue(chunks)
    queue.claim(0)
    queue.clear()
    assert queue.claim(1) is None
    assert queue.claim(0) == chunks[0]


def test_as_many_chunks_come_at_the_same_time_as_there_are_slots_for() -> None:
    """Slots for four rollouts: two chunks of two come at once, and the third as soon as a slot is free."""
    queue, admission = WorkQueue([Chunk(number, [], {}) for number in range(3)]), AdmissionControl(4)
    asked, begun, empty = list[int](), list[int](), list[int]()
    answers = asyncio.Semaphore(0)

    async def ask(claim: int) -> Chunk | None:
        asked.append(claim)
        await answers.acquire()
        return queue.claim(claim)

    async def work(claim: int) -> None:
        async with claim_chunk(claim, ask, admission, chunk_rollouts=2) as chunk:
            if chunk is None:
                empty.append(claim)
                return
            begun.append(chunk.number)
            admission.add([f"{chunk.number} a", f"{chunk.number} b"])

    async def run() -> None:
        tasks = [asyncio.create_task(work(claim)) for claim in range(6)]
        await settle()
        assert asked == [0, 1]
        answers.release()
        answers.release()
        await settle()
        assert (begun, asked) == ([0, 1], [0, 1])
        admission.remove(["0 a"])
        answers.release()
        await settle()
        assert (begun, asked) == ([0, 1, 2], [0, 1, 2])
        for name in ("0 b", "1 a"):
            admission.remove([name])
        await settle()
        assert asked == [0, 1, 2, 3]
        for _ in range(6):
            answers.release()
        await asyncio.wait_for(asyncio.gather(*tasks), timeout=5)
        assert empty == [3, 4, 5]

    asyncio.run(run())


def test_all_that_there_are_slots_for_are_admitted_at_once() -> None:
    async def come() -> list[str]:
        admission, came = AdmissionControl(4), list[str]()

        async def enter(name: str) -> None:
            await admission.wait([f"{name}1", f"{name}2"])
            came.append(name)

        admission.add(["before"])
        tasks = [asyncio.create_task(enter(name)) for name in "abcd"]
        await asyncio.sleep(0)  # they ask
        await asyncio.sleep(0)  # they go on
        first = "".join(came)
        admission.remove(["a1"])
        admission.remove(["unknown"])
        await settle()
        second = "".join(came)
        admission.remove(["a2"])
        await settle()
        third = "".join(came)
        admission.admit_all()
        await asyncio.gather(*tasks)
        return [first, second, third, "".join(came)]

    # 1 + 2 + 2 rollouts are more than 4 slots: the last one who found a free slot brings as many as it has.
    assert asyncio.run(come()) == ["ab", "ab", "abc", "abcd"]


def test_who_no_longer_waits_takes_no_slot() -> None:
    async def come() -> bool:
        admission = AdmissionControl(1)
        admission.add(["before"])
        gone, next_one = (asyncio.create_task(admission.wait([name])) for name in ("gone", "next"))
        await settle()
        gone.cancel()
        await settle()
        admission.remove(["before"])
        await asyncio.wait_for(next_one, timeout=5)
        return gone.cancelled()

    assert asyncio.run(come())


def test_an_engine_claims_as_many_chunks_as_fill_it() -> None:
    # A chunk of 4 is open for 1 + 1/2 + 1/3 + 1/4 = 25/12 rollouts, so 16 slots take 4 * 25/12 chunks; and one more waits.
    assert count_claims(chunk_rollouts=4, concurrent_rollouts=16) == 10
    assert count_claims(chunk_rollouts=1, concurrent_rollouts=16) == 17


def test_an_engine_with_many_slots_claims_more_at_once() -> None:
    assert [RolloutConfig(concurrent_rollouts=slots).chunk_size for slots in (1, 256, 800, 10_000)] == [8, 8, 8, 100]
    assert RolloutConfig(concurrent_rollouts=10_000, chunk_rollouts=3).chunk_size == 3
