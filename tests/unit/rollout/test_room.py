import asyncio

from drag_ray.rollout.room import Room


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_all_for_whom_there_is_room_come_in_at_once() -> None:
    async def come() -> list[str]:
        room, came = Room(4), list[str]()

        async def enter(name: str) -> None:
            await room.wait([f"{name}1", f"{name}2"])
            came.append(name)

        room.enter(["before"])
        tasks = [asyncio.create_task(enter(name)) for name in "abcd"]
        await asyncio.sleep(0)  # they ask
        await asyncio.sleep(0)  # they go on
        first = "".join(came)
        room.leave(["a1"])
        room.leave(["unknown"])
        await settle()
        second = "".join(came)
        room.leave(["a2"])
        await settle()
        third = "".join(came)
        room.open()
        await asyncio.gather(*tasks)
        return [first, second, third, "".join(came)]

    # 1 + 2 + 2 rollouts are more than 4 places: the last one who found a free place brings as many as it has.
    assert asyncio.run(come()) == ["ab", "ab", "abc", "abcd"]


def test_who_no_longer_waits_takes_no_room() -> None:
    async def come() -> bool:
        room = Room(1)
        room.enter(["before"])
        gone, next_one = (asyncio.create_task(room.wait([name])) for name in ("gone", "next"))
        await settle()
        gone.cancel()
        await settle()
        room.leave(["before"])
        await asyncio.wait_for(next_one, timeout=5)
        return gone.cancelled()

    assert asyncio.run(come())
