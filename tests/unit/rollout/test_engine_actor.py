"""The actor of an engine: who asks it to rest, and how often."""

import asyncio
from typing import Any

import pytest

from drag_ray.engine.config import EngineConfig
from drag_ray.rollout.engine_pool import EngineActor, EngineSpec


class RestingEngine:
    """Takes a moment to rest, and minds being asked to while it does or after."""

    def __init__(self) -> None:
        self.is_awake = True

    async def rest(self) -> None:
        assert self.is_awake, "asked to rest twice"
        self.is_awake = False
        await asyncio.sleep(0.01)


@pytest.fixture
def engine() -> RestingEngine:
    return RestingEngine()


@pytest.fixture
def actor(engine: RestingEngine, monkeypatch: pytest.MonkeyPatch) -> EngineActor:
    spec: Any = EngineSpec(EngineConfig(), image_dirs=(), images_per_prompt=0, adapter_places=0, num_gpus=0.9)
    actor = EngineActor(spec)
    monkeypatch.setattr(actor, "_engine", engine)
    return actor


async def test_who_asks_for_the_gpu_while_the_engine_goes_to_rest_waits_until_it_does(
    actor: EngineActor, engine: RestingEngine
) -> None:
    first = asyncio.create_task(actor.rest())
    await asyncio.sleep(0)
    assert not engine.is_awake
    await actor.rest()
    assert first.done()
