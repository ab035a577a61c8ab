"""The adapters of an engine that notes what it is told, the list that several such engines follow, and the effect of one."""

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drag_ray.errors import ServeError
from drag_ray.serve.adapters.engine_adapters import (
    Adapter,
    AdapterRegistry,
    AdapterTable,
    EngineAdapters,
    build_table,
    check_effect,
)
from drag_ray.serve.ingress.limits import RefusalError


class FakeEngine:
    """Has adapters by number; cannot load from folders of some names."""

    def __init__(self, *broken: str) -> None:
        self.broken = ("broken", *broken)
        self.held: set[int] = set()
        self.paths: list[str] = []

    async def add_lora(self, request: Any) -> None:
        await asyncio.sleep(0)
        if Path(request.lora_path).readlink().name in self.broken:
            raise ValueError("shapes differ")
        self.held.add(request.lora_int_id)
        self.paths.append(request.lora_path)

    async def remove_lora(self, number: int) -> None:
        self.held.remove(number)  # vLLM's passes over a number that it has not


async def check_held(engine: FakeEngine, request: Any) -> None:
    assert request.lora_int_id in engine.held
    if Path(request.lora_path).readlink().name == "idle":
        raise ServeError("it changes nothing")


class Replica:
    """An engine with its adapters."""

    def __init__(self, *broken: str) -> None:
        self.engine, self.by_name = FakeEngine(*broken), dict[str, Any]()
        self.adapters = EngineAdapters("base", check_held)
        self.adapters.start(self.engine, self.by_name)

    def numbers(self) -> dict[str, int]:
        return {name: request.lora_int_id for name, request in self.by_name.items()}


def make_registry(replicas: Sequence[Replica], places: int | None = None) -> AdapterRegistry:
    async def broadcast(method: str, *arguments: Any) -> list[Any]:
        return await asyncio.gather(*(getattr(replica.adapters, method)(*arguments) for replica in replicas))

    return AdapterRegistry(build_table({}), places, broadcast)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.seconds
async def test_every_load_has_a_number_and_a_path_of_its_own_on_all_engines() -> None:
    replicas = [Replica(), Replica()]
    registry = make_registry(replicas)
    await registry.load("a", "/folder", replaces=False)
    await registry.unload("a")
    await registry.load("a", "/folder", replaces=False)
    await registry.load("b", "/folder", replaces=False)
    for replica in replicas:
        assert set(replica.numbers()) == {"a", "b"}
        assert replica.engine.held == set(replica.numbers().values())
        assert len(set(replica.engine.paths)) == 3
    assert replicas[0].numbers() == replicas[1].numbers()


async def test_unloading_refuses_new_requests_at_once_and_waits_for_those_under_way() -> None:
    replicas = [Replica(), Replica()]
    registry = make_registry(replicas)
    await registry.load("a", "/folder", replaces=False)
    number = replicas[1].numbers()["a"]
    with replicas[1].adapters.use("a"), replicas[1].adapters.use("base"):
        unloading = asyncio.create_task(registry.unload("a"))
        await settle()
        assert not unloading.done()
        assert (replicas[0].numbers(), replicas[1].numbers()) == ({}, {"a": number})  # requests may look their adapter up yet
        with (
            pytest.raises(RefusalError, match=r"'a' does not exist here, expected one of 'base'\.") as error,
            replicas[1].adapters.use("a"),
        ):
            pass
        assert error.value.status == 404
        assert (replicas[0].engine.held, replicas[1].engine.held) == (set(), {number})
        await registry.load("b", "/other", replaces=False)  # nobody waits for a stranger's requests
    await unloading
    assert set(replicas[1].numbers()) == {"b"}
    assert number not in replicas[1].engine.held


async def test_a_replaced_adapter_stays_for_its_requests_while_new_ones_get_the_other() -> None:
    replica = Replica()
    registry = make_registry([replica])
    await registry.load("a", "/old", replaces=False)
    old = replica.numbers()["a"]
    with replica.adapters.use("a"):
        replacing = asyncio.create_task(registry.load("a", "/new", replaces=True))
        await settle()
        new = replica.numbers()["a"]
        assert not replacing.done()
        assert replica.engine.held == {old, new}
        with replica.adapters.use("a"):
            pass
        assert replica.engine.held == {old, new}
    await replacing
    assert replica.engine.held == {new}


async def test_what_one_engine_cannot_load_no_engine_keeps() -> None:
    replicas = [Replica(), Replica("unreadable-there")]
    registry = make_registry(replicas)
    await registry.load("a", "/folder", replaces=False)
    before = replicas[0].numbers()
    for path in ("/broken", "/unreadable-there"):
        for name in ("a", "b"):
            with pytest.raises(RefusalError, match="shapes differ"):
                await registry.load(name, path, replaces=True)
    await settle()
    for replica in replicas:
        assert replica.numbers() == before
        assert replica.engine.held == set(before.values())


async def test_an_adapter_that_changes_nothing_is_unloaded_and_refused_and_an_older_one_of_its_name_stays() -> None:
    replicas = [Replica(), Replica()]
    registry = make_registry(replicas)
    await registry.load("a", "/folder", replaces=False)
    before = replicas[0].numbers()
    for name in ("a", "b"):
        with pytest.raises(RefusalError, match=r"'/idle': .*it changes nothing") as error:
            await registry.load(name, "/idle", replaces=True)
        assert error.value.status == 400
    await settle()
    for replica in replicas:
        assert (replica.numbers(), replica.engine.held) == (before, set(before.values()))


async def test_an_engine_that_starts_late_and_a_registry_that_starts_anew_catch_up() -> None:
    replica, late = Replica(), Replica()
    registry = make_registry([replica])
    await registry.load("a", "/folder", replaces=False)
    await late.adapters.hold(registry.catch_up(build_table({})))
    assert late.numbers() == replica.numbers()
    anew = make_registry([replica, late])
    await anew.load("b", "/other", replaces=False)
    assert set(late.numbers()) == set(replica.numbers()) == {"a", "b"}
    assert make_registry([]).catch_up(late.adapters.table) == late.adapters.table


async def test_an_engine_that_starts_late_goes_on_without_what_can_no_longer_be_loaded(caplog: pytest.LogCaptureFixture) -> None:
    replica, late = Replica(), Replica("gone")
    registry = make_registry([replica, late])
    table = AdapterTable((Adapter("a", "/gone", 1), Adapter("b", "/folder", 2)), 2)
    with pytest.raises(RefusalError, match="shapes differ"):
        await late.adapters.hold(table, needs_all=True)
    for each in (replica, late):
        await each.adapters.hold(table)
    assert "goes on without the adapter 'a': lora_path '/gone': vLLM cannot write with the adapter (shapes differ)" in caplog.text
    await registry.load("c", "/other", replaces=False)
    assert (replica.numbers(), late.numbers()) == ({"a": 1, "b": 2, "c": 3}, {"b": 2, "c": 3})
    await registry.unload("a")
    assert replica.numbers() == late.numbers() == {"b": 2, "c": 3}


async def test_an_older_table_changes_nothing() -> None:
    replica = Replica()
    await replica.adapters.hold(AdapterTable((Adapter("a", "/folder", 3),), version=3))
    await replica.adapters.hold(AdapterTable((), version=2))
    assert replica.numbers() == {"a": 3}


async def test_a_load_goes_on_when_its_client_hangs_up() -> None:
    replica = Replica()
    registry = make_registry([replica])
    loading = asyncio.create_task(registry.load("a", "/folder", replaces=False))
    await asyncio.sleep(0)
    loading.cancel()
    await settle()
    assert replica.engine.held == set(replica.numbers().values()) == {1}


async def test_an_engine_that_catches_up_keeps_what_is_being_loaded() -> None:
    replica = Replica()
    await replica.adapters.load(Adapter("b", "/other", 6))
    await replica.adapters.hold(AdapterTable((Adapter("a", "/folder", 5),), version=5))
    await replica.adapters.hold(AdapterTable((Adapter("a", "/folder", 5), Adapter("b", "/other", 6)), version=6))
    await settle()
    assert replica.engine.held == {5, 6}
    assert len(replica.engine.paths) == 2


async def test_what_cannot_be_done_is_refused() -> None:
    replica = Replica()
    registry = make_registry([replica], places=2)
    with pytest.raises(RefusalError, match="no such adapter") as error:
        await registry.unload("a")
    assert error.value.status == 404
    await registry.load("a", "/folder", replaces=False)
    with pytest.raises(RefusalError, match="load_inplace"):
        await registry.load("a", "/folder", replaces=False)
    await registry.load("b", "/folder", replaces=False)
    with pytest.raises(RefusalError, match=r"holds 2 adapters \(serve\.adapter_places\)") as error:
        await registry.load("c", "/folder", replaces=False)
    assert error.value.status == 409
    with replica.adapters.use("a"):
        unloading = asyncio.create_task(registry.unload("a"))
        await settle()
        with pytest.raises(RefusalError, match="and it has 2, with those that still have requests"):
            await registry.load("c", "/folder", replaces=False)
    await unloading
    await registry.load("c", "/folder", replaces=False)
    assert set(replica.numbers()) == {"b", "c"}


async def test_an_unknown_name_is_refused_with_the_models_that_there_are() -> None:
    replica = Replica()
    registry = make_registry([replica])
    for number in range(25):
        await registry.load(f"a{number}", "/folder", replaces=False)
    with replica.adapters.use(""), replica.adapters.use("base"), replica.adapters.use("a24"):
        pass
    with pytest.raises(RefusalError, match=r"'a99' does not .* 'base', 'a0', .*, 'a18' and 6 more \(GET /v1/models\)") as error:
        replica.adapters.use("a99").__enter__()
    assert error.value.status == 404


class ReadEngine:
    """Gives two tokens these log-probabilities, one reading after the other; a reading may be of other tokens."""

    def __init__(self, *readings: float | dict[int, float]) -> None:
        self._readings = [reading if isinstance(reading, dict) else {1: reading, 2: reading - 1} for reading in readings]
        self.adapters: list[Any] = []

    def get_tokenizer(self) -> Any:
        return lambda text: {"input_ids": list(range(5))}

    async def generate(self, prompt: Any, params: Any, request_id: str, lora_request: Any) -> AsyncGenerator[Any]:
        assert (params.logprobs, params.max_tokens, params.prompt_logprobs) == (20, 1, None)
        self.adapters.append(lora_request)
        given = {token: SimpleNamespace(logprob=value) for token, value in self._readings.pop(0).items()}
        yield SimpleNamespace(outputs=[SimpleNamespace(logprobs=[given])])


async def test_an_adapter_that_changes_more_than_the_engine_by_itself_is_taken() -> None:
    engine = ReadEngine(-1.0, -1.2, -1.01)
    await check_effect(engine, "adapter")
    assert engine.adapters == [None, "adapter", None]
    await check_effect(ReadEngine(-1.0, {8: -1.0, 9: -2.0}, -1.0), "adapter")  # it expects something else altogether


@pytest.mark.parametrize("readings", [(-1.0, -1.0, -1.0), (-1.0, -1.000001, -1.0), (-1.0, -1.1, -1.2)])
async def test_one_that_changes_nothing_or_no_more_than_chance_does_is_refused(readings: tuple[float, ...]) -> None:
    with pytest.raises(ServeError, match="it changes nothing"):
        await check_effect(ReadEngine(*readings), "adapter")


async def test_one_with_which_the_model_gives_no_numbers_is_refused() -> None:
    with pytest.raises(ServeError, match="no numbers"):
        await check_effect(ReadEngine(-1.0, math.nan, -1.0), "adapter")
