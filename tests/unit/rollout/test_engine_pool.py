"""Loans of the kept engines, and the requests that let one rest."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayActorError
from small_index import write_index

from drag_ray.agent.config import AgentConfig
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.models.canary import Canary
from drag_ray.errors import TrainError
from drag_ray.rollout import engine_pool, runner
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.engine_pool import EngineActor, EnginePool, EngineSpec, _build_spec
from drag_ray.rollout.options import WorkerOptions, build_options
from drag_ray.rollout.pool import Pool
from drag_ray.rollout.runner import start_engines
from drag_ray.types import Page

SPEC = EngineSpec(EngineConfig(), image_dirs=(), images_per_prompt=0, adapter_places=0, num_gpus=0)


class ScriptedActor:
    """The part of an engine's actor that the pool calls."""

    def __init__(self) -> None:
        self.is_alive = True
        self.__ray_ready__ = SimpleNamespace(remote=self._answer)
        self.start = SimpleNamespace(remote=lambda run_dir: None)

    async def _answer(self) -> None:
        await asyncio.sleep(0)
        if not self.is_alive:
            raise RayActorError


@pytest.fixture
def made() -> list[Any]:
    return []


@pytest.fixture
def pool(made: list[Any]) -> EnginePool:
    def make(spec: EngineSpec) -> ScriptedActor:
        made.append(ScriptedActor())
        return made[-1]

    return EnginePool(make)


def test_engines_that_start_early_are_those_that_a_collection_borrows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[WorkerOptions] = []
    monkeypatch.setattr(runner, "prepare_engines", lambda options, settings: asked.append(options))
    monkeypatch.setattr(runner, "count_gpus", lambda: 1)
    sections = AgentConfig(), EngineConfig(max_num_seqs=7), RolloutConfig()
    start_engines(*sections, tmp_path / "run")
    write_index(tmp_path, [Page("a.pdf", 1, 1, "rotor")], [])
    borrowing = build_options(*sections, tmp_path, tmp_path / "run" / "collect")
    pool = Pool(1, 1, num_cpus=1, num_gpus=1)
    assert [_build_spec(options, pool) for options in asked] == [_build_spec(borrowing, pool)]
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    agent, engine, settings = sections
    start_engines(AgentConfig(page_view="image"), engine, settings, tmp_path / "run")
    start_engines(agent, EngineConfig(device="cpu"), settings, tmp_path / "run")
    start_engines(agent, engine, RolloutConfig(num_engines=1), tmp_path / "run")  # of a cluster that is to grow
    monkeypatch.setattr(runner, "count_gpus", lambda: 0)
    start_engines(*sections, tmp_path / "run")
    assert len(asked) == 1


async def lend_all(pool: EnginePool, *borrowers: str) -> list[Any]:
    loans = await asyncio.gather(*(pool.acquire(name) for name in borrowers))
    return [loan.engine for loan in loans]


async def test_workers_that_ask_at_once_are_spread_over_the_engines(pool: EnginePool, made: list[Any]) -> None:
    await pool.resize(SPEC, 2, 2, Path())
    lent = await lend_all(pool, "a", "b", "c", "d")
    assert sorted(made.index(engine) for engine in lent) == [0, 0, 1, 1]
    assert await lend_all(pool, "d", "a") == [lent[3], lent[0]]


async def test_one_worker_more_gets_an_engine_that_starts_for_it(pool: EnginePool, made: list[Any]) -> None:
    await pool.resize(SPEC, 1, 2, Path())
    lent = await lend_all(pool, "a", "b", "c")
    assert [made.index(engine) for engine in lent] == [0, 0, 1]


async def test_those_who_shared_an_engine_that_is_gone_share_another_one(pool: EnginePool, made: list[Any]) -> None:
    await pool.resize(SPEC, 1, 2, Path())
    await lend_all(pool, "a", "b")
    made[0].is_alive = False
    assert await lend_all(pool, "b", "a") == [made[1], made[1]]
    assert len(made) == 2


async def test_each_offer_takes_back_all_engines_and_has_a_number_of_its_own(pool: EnginePool, made: list[Any]) -> None:
    assert await pool.resize(SPEC, 1, 1, Path()) == 0
    first = await pool.acquire("a")
    assert await pool.resize(SPEC, 1, 1, Path()) == 1
    second = await pool.acquire("b")
    assert second.engine is first.engine is made[0]
    assert second.offer != first.offer


async def test_an_engine_that_still_starts_is_ended_without_waiting_for_it(
    pool: EnginePool, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[Any] = []
    closed: list[Any] = []
    monkeypatch.setattr(engine_pool, "_CLOSE_ONE_S", 0.1)
    monkeypatch.setattr(engine_pool.ray, "kill", killed.append)
    await pool.resize(SPEC, 2, 1, Path())
    starting = asyncio.Event()
    made[0].close = SimpleNamespace(remote=starting.wait)
    made[1].close = SimpleNamespace(remote=lambda: asyncio.sleep(0, closed.append(made[1])))
    await asyncio.wait_for(pool.close(), 5)
    assert killed == made
    assert closed == [made[1]]


class RestingEngine:
    """Takes a moment to rest, and minds being asked to while it does or after."""

    def __init__(self) -> None:
        self.is_awake = True

    async def rest(self) -> None:
        assert self.is_awake, "asked to rest twice"
        self.is_awake = False
        await asyncio.sleep(0.01)


class StaleEngine:
    """Finds what an older adapter would until it has loaded the new one so often."""

    has_died = False

    def __init__(self, num_loads: int) -> None:
        self.num_loads = num_loads

    async def begin(self, config: EngineConfig, adapters: Sequence[str]) -> None:
        self.num_loads -= 1

    async def score(self, token_ids: Sequence[int], adapter: str) -> list[float]:
        return [-2.0, -1.02] if self.num_loads > 0 else [-1.99, -1.11]


@pytest.mark.parametrize(("num_loads", "num_left", "said"), [(1, 0, ""), (2, 0, ""), (3, 1, r"engine e7 of the node n1 .*")])
async def test_an_engine_that_writes_with_an_older_adapter_is_given_it_again_and_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_loads: int, num_left: int, said: str
) -> None:
    Canary([5, 6, 7], [-2.0, -1.1], {"the policy of the step before": [-2.0, -1.0]}).write(tmp_path)
    context = SimpleNamespace(get_actor_id=lambda: "e7", get_node_id=lambda: "n1")
    monkeypatch.setattr(engine_pool.ray, "get_runtime_context", lambda: context)
    actor, engine = EngineActor(SPEC), StaleEngine(num_loads)
    monkeypatch.setattr(actor, "_engine", engine)
    monkeypatch.setattr(engine_pool, "log_to_file", lambda run_dir: None)
    with pytest.raises(TrainError, match=rf"{said}{tmp_path} and is 0.04 nats .*step before") if said else nullcontext():
        await actor.begin(1, EngineConfig(), [str(tmp_path)], tmp_path)
    assert engine.num_loads == num_left


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
