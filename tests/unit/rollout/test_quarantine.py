"""How many of the rollouts that an engine took with it run again at once."""

import asyncio

import pytest

from drag_ray.errors import EngineDiedError
from drag_ray.rollout.worker import Quarantine


async def run_rounds(quarantine: Quarantine, alone: list[bool], rounds: int) -> list[list[int]]:
    """Which rollouts run in each round, at whose end all of them end."""
    running, ends = list[int](), [asyncio.Event() for _ in range(rounds)]
    seen = list[list[int]]()

    async def run(number: int) -> None:
        async with quarantine.enter(alone[number]):
            running.append(number)
            await ends[len(seen)].wait()
            running.remove(number)

    tasks = [asyncio.create_task(run(number)) for number in range(len(alone))]
    for end in ends:
        for _ in range(20 * len(alone)):  # whoever can enters
            await asyncio.sleep(0)
        seen.append(sorted(running))
        end.set()
    await asyncio.gather(*tasks)
    return seen


async def test_twice_as_many_run_each_time_until_there_are_a_quarter_of_the_slots() -> None:
    rounds = await run_rounds(Quarantine(num_slots=16), [False] * 15, rounds=5)
    assert [len(running) for running in rounds] == [1, 2, 4, 4, 4]
    assert sorted(number for running in rounds for number in running) == list(range(15))


async def test_who_has_one_try_left_runs_alone_and_when_no_other_does() -> None:
    rounds = await run_rounds(Quarantine(num_slots=16), [False, True, False, False, True], rounds=4)
    assert rounds[0] == [0]
    assert [1] in rounds
    assert [4] in rounds
    assert sorted(number for running in rounds for number in running) == [0, 1, 2, 3, 4]


async def test_an_engine_that_dies_admits_no_more_than_before() -> None:
    quarantine = Quarantine(num_slots=16)
    with pytest.raises(EngineDiedError):
        async with quarantine.enter(alone=False):
            raise EngineDiedError("gone")
    assert [len(running) for running in await run_rounds(quarantine, [False] * 3, rounds=2)] == [1, 2]
