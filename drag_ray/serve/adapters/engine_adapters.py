"""The one list of an endpoint's adapters, which all of its engines follow, those among them that start later; and the adapters
of one engine: which it has by now, which requests are under way with them, and whether each changes its words.

An engine that applies nothing of an adapter says nothing of that, and answers under its name as the base model does.
"""

import asyncio
import logging
import math
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from drag_ray.errors import ServeError
from drag_ray.serve.ingress.limits import RefusalError, refuse_unknown_model

_logger = logging.getLogger(__name__)

_READ_TEXT = "Question: How fast may the rotor turn?\n<think>The limit is asked for.</think>\n<search>rotor speed"
"""What the next token is asked of."""
_NUM_TOKENS = 20
"""Likeliest tokens that are compared, as many as vLLM gives."""
_ROUNDING = 1e-5
"""nats by which two readings may differ without meaning anything"""


async def check_effect(engine: Any, adapter: Any) -> None:
    """Compare what an engine (vLLM's `AsyncLLM`) expects after a short text with the adapter (a `LoRARequest`) and without.
    Raises ServeError where they are not numbers, or differ no more than those of the base model, read twice, do."""
    base, adapted, again = [await _read_logprobs(engine, reader) for reader in (None, adapter, None)]
    if not all(map(math.isfinite, adapted.values())):
        raise ServeError("the probabilities that the model gives with it are no numbers. Train again with a lower learning rate")
    effect, noise = _compute_gap(adapted, base), _compute_gap(again, base)
    if effect <= max(noise, _ROUNDING):
        raise ServeError(
            f"it changes nothing: log-probabilities differ by {effect:.2g} from those of the base model, whose own "
            f"differ by {noise:.2g} from one reading to the next. Check that it was trained for this model, and train longer"
        )


async def _read_logprobs(engine: Any, adapter: Any) -> dict[int, float]:
    """The log-probabilities of the likeliest next tokens. Those of a prompt's own tokens end vLLM's engine on a CPU, where others
    are in the batch that come with adapters."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    params = SamplingParams(max_tokens=1, temperature=0, logprobs=_NUM_TOKENS, output_kind=RequestOutputKind.FINAL_ONLY)
    prompt = {"prompt_token_ids": list(engine.get_tokenizer()(_READ_TEXT)["input_ids"])}
    logprobs: Mapping[int, Any] = {}
    async for output in engine.generate(prompt, params, f"canary-{uuid4()}", lora_request=adapter):
        logprobs = output.outputs[0].logprobs[0]
    return {token: given.logprob for token, given in logprobs.items()}


def _compute_gap(some: Mapping[int, float], others: Mapping[int, float]) -> float:
    """The mean difference of those that both have, in nats."""
    shared = some.keys() & others.keys()
    return sum(abs(some[token] - others[token]) for token in shared) / len(shared) if shared else math.inf


CheckEffect = Callable[[Any, Any], Awaitable[None]]
"""Raises an error if an engine does not write with an adapter, of which it has vLLM's `LoRARequest`."""
UseModel = Callable[[str], AbstractContextManager[None]]
"""From the name of a model to what stands around a request to it."""


@dataclass(frozen=True)
class Adapter:
    """An adapter as it was loaded once: `number` is vLLM's, and that of no other load, not even of the same folder."""

    name: str
    path: str
    number: int


@dataclass(frozen=True)
class AdapterTable:
    """All adapters that are served, each with a name of its own.

    Of two tables the one of the higher version is newer; no adapter has a number above it.
    """

    adapters: tuple[Adapter, ...]
    version: int

    def find(self, name: str) -> Adapter | None:
        """The adapter of this name, if there is one."""
        return next((adapter for adapter in self.adapters if adapter.name == name), None)


def build_table(folders: dict[str, str]) -> AdapterTable:
    """The table that an endpoint starts with, from folders by name."""
    adapters = tuple(Adapter(name, path, number) for number, (name, path) in enumerate(folders.items(), start=1))
    return AdapterTable(adapters, version=len(adapters))


class EngineAdapters:
    """Keeps the adapters of one engine. Every request names its adapter by the time that it is admitted, and keeps that one: an
    adapter whose name is gone, or given to another, stays in the engine until its last request is over. `check_effect`: is asked
    of each adapter that was loaded, before anybody is answered by it."""

    def __init__(self, base_name: str, check_effect: CheckEffect = check_effect) -> None:
        self._check_effect = check_effect
        self._base_name = base_name
        self.table = AdapterTable((), version=-1)
        self._engine: Any = None
        self._by_name: dict[str, Any] = {}
        self._uses: Counter[int] = Counter()
        self._idle: dict[int, asyncio.Event] = {}
        self._loaded: dict[int, Any] = {}
        self._removals: dict[int, asyncio.Task[None]] = {}
        self._loading = asyncio.Lock()
        self._links = tempfile.TemporaryDirectory(prefix="drag_ray_adapters_")

    def start(self, engine: Any, by_name: dict[str, Any]) -> None:
        """Load into this engine, vLLM's `AsyncLLM`, from now on. `by_name` is vLLM's own mapping from names to `LoRARequest`s, by
        which it knows an adapter in a request."""
        self._engine, self._by_name = engine, by_name

    @contextmanager
    def use(self, name: str) -> Generator[None]:
        """A request to the base model, which an empty name means too, or to the adapter that has this name now, which stays in
        the engine meanwhile. Raises RefusalError where no model has this name, or its adapter is being unloaded."""
        adapter = self._by_name.get(name)
        number = adapter.lora_int_id if adapter else 0
        if number in self._removals or not (adapter or name in ("", self._base_name)):
            staying = (name for name, held in self._by_name.items() if held.lora_int_id not in self._removals)
            raise refuse_unknown_model(name, (self._base_name, *staying))
        self._uses[number] += 1
        try:
            yield
        finally:
            self._uses[number] -= 1
            if number in self._idle and not self._uses[number]:
                self._idle[number].set()

    async def load(self, adapter: Adapter) -> None:
        """Load an adapter that a table is going to name; nobody is answered by it before. Raises RefusalError where vLLM cannot
        load it, or writes no otherwise with it than without."""
        async with self._loading:
            await self._load(adapter)

    async def hold(self, table: AdapterTable, *, needs_all: bool = False) -> None:
        """Have the adapters of a table, and give up others; nothing is done if the engine has this table or a newer one.

        All are loaded before any name changes, so that each name is that of one adapter throughout. With `needs_all` an adapter
        that cannot be loaded raises a RefusalError, and names are as they were; otherwise the log says so, and the engine goes on
        without it: what was loaded once may be gone when another engine starts."""
        async with self._loading:
            if table.version <= self.table.version:
                return
            wanted: dict[str, Any] = {}
            for adapter in table.adapters:
                try:
                    wanted[adapter.name] = await self._load(adapter)
                except RefusalError as error:
                    if needs_all:
                        raise
                    _logger.error("this engine goes on without the adapter %r: %s", adapter.name, error)
            self._by_name.update(wanted)
            self.table = table
            named = {adapter.number for adapter in table.adapters} | set(self._removals)
            for number in [number for number in self._loaded if number not in named and number <= table.version]:
                self._removals[number] = asyncio.create_task(self._remove(number))

    async def get_table(self) -> AdapterTable:
        """The table of the adapters that the engine has."""
        return self.table

    async def wait_until_removed(self, number: int) -> None:
        """Return once the engine no longer has an adapter that was given up."""
        if number in self._removals:
            await asyncio.shield(self._removals[number])

    async def _load(self, adapter: Adapter) -> Any:
        from vllm.lora.request import LoRARequest

        if adapter.number in self._loaded:
            return self._loaded[adapter.number]
        # vLLM reuses the cached beginning of a prompt for adapters of equal name and path, also after the files have changed.
        link = Path(self._links.name) / str(adapter.number)
        link.unlink(missing_ok=True)
        link.symlink_to(adapter.path)
        request = LoRARequest(adapter.name, adapter.number, str(link))
        try:
            await self._engine.add_lora(request)
            await self._check_effect(self._engine, request)
        except Exception as error:  # vLLM passes on whatever its worker raised, by type and by name
            with suppress(Exception):  # of an engine that is gone; otherwise it keeps a place for what it has begun to load
                await self._engine.remove_lora(adapter.number)
            raise RefusalError(400, f"lora_path {adapter.path!r}: vLLM cannot write with the adapter ({error}).") from error
        self._loaded[adapter.number] = request
        return request

    async def _remove(self, number: int) -> None:
        if self._uses[number]:
            idle = self._idle[number] = asyncio.Event()
            await idle.wait()
            del self._idle[number]
        # Requests look their adapter up by its name after they were admitted, so the name stays as long as they do.
        for name in [name for name, request in self._by_name.items() if request.lora_int_id == number]:
            del self._by_name[name]
        await self._engine.remove_lora(number)
        del self._loaded[number], self._removals[number], self._uses[number]
        (Path(self._links.name) / str(number)).unlink(missing_ok=True)


Broadcast = Callable[..., Awaitable[list[Any]]]
"""Calls the method of this name, with these arguments, of every engine's `EngineAdapters`; raises what one of them raises."""
CallRegistry = Callable[..., Awaitable[Any]]
"""Calls the method of this name, with these arguments, of the endpoint's `AdapterRegistry`, from wherever a request arrives."""


class AdapterRegistry:
    """Keeps the table of adapters. Changes are made one after another; only the wait for requests under way is not in the line.
    `places`: adapters that an engine can hold at once; None for any number."""

    def __init__(self, table: AdapterTable, places: int | None, broadcast: Broadcast) -> None:
        self._table = table
        self._places = places
        self._broadcast = broadcast
        self._leaving: set[int] = set()
        self._changing = asyncio.Lock()

    def catch_up(self, known: AdapterTable) -> AdapterTable:
        """The newest table, for an engine that knows this one: its own, if the registry was started anew since."""
        if known.version > self._table.version:
            self._table = known
        return self._table

    async def load(self, name: str, path: str, replaces: bool) -> None:
        """Load an adapter into all engines, which can read its folder, to the end even if who asked for it hangs up. One that
        `replaces` may take the name of another, whose requests go on with that one and are waited for. Raises RefusalError where
        the name is taken, no place is left, or an engine cannot load it. Nothing has changed then."""
        await asyncio.shield(self._load(name, path, replaces))

    async def unload(self, name: str) -> None:
        """Unload an adapter from all engines, once the requests that use it are over; new ones are refused at once. Raises
        RefusalError where there is no such adapter."""
        await asyncio.shield(self._unload(name))

    async def _load(self, name: str, path: str, replaces: bool) -> None:
        async with self._changing:
            await self._catch_up_with_engines()
            before = self._table.find(name)
            self._check_load(name, before, replaces)
            adapter = Adapter(name, path, self._table.version + 1)
            others = tuple(other for other in self._table.adapters if other is not before)
            await self._load_everywhere(adapter)
            await self._publish((*others, adapter), before)
        await self._wait_until_removed(before)

    async def _unload(self, name: str) -> None:
        async with self._changing:
            await self._catch_up_with_engines()
            adapter = self._table.find(name)
            if adapter is None:
                raise RefusalError(404, f"lora_name {name[:80]!r}: no such adapter. GET /v1/models lists the loaded ones.")
            await self._publish(tuple(other for other in self._table.adapters if other is not adapter), adapter)
        await self._wait_until_removed(adapter)

    def _check_load(self, name: str, before: Adapter | None, replaces: bool) -> None:
        if before and not replaces:
            raise RefusalError(
                400, f"lora_name {name!r}: there is such an adapter. Unload it, or set load_inplace to replace it."
            )
        num_held = len(self._table.adapters) + len(self._leaving)
        if self._places is not None and num_held >= self._places:
            raise RefusalError(
                409,
                f"lora_name {name!r}: on a CPU an engine holds {self._places} adapters (serve.adapter_places), and it has "
                f"{num_held}, with those that still have requests. Unload one.",
            )

    async def _catch_up_with_engines(self) -> None:
        for known in await self._broadcast("get_table"):
            self.catch_up(known)

    async def _load_everywhere(self, adapter: Adapter) -> None:
        """Load it into every engine, before any of them is told its name."""
        try:
            await self._broadcast("load", adapter)
        except Exception:
            # A table without it makes the others give it up; its number is not used again.
            self._table = AdapterTable(self._table.adapters, adapter.number)
            await self._publish(self._table.adapters)
            raise

    async def _publish(self, adapters: tuple[Adapter, ...], leaving: Adapter | None = None) -> None:
        self._table = AdapterTable(adapters, self._table.version + 1)
        if leaving:
            self._leaving.add(leaving.number)
        await self._broadcast("hold", self._table)

    async def _wait_until_removed(self, adapter: Adapter | None) -> None:
        if adapter is None:
            return
        try:
            await self._broadcast("wait_until_removed", adapter.number)
        finally:
            self._leaving.discard(adapter.number)
