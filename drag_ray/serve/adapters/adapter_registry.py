"""The one list of an endpoint's adapters, which all of its engines follow, those among them that start later."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from drag_ray.serve.adapters.engine_adapters import Adapter, AdapterTable
from drag_ray.serve.ingress.limits import RefusalError

Broadcast = Callable[..., Awaitable[list[Any]]]
"""Calls the method of this name, with these arguments, of every engine's `EngineAdapters`; raises what one of them raises."""
CallRegistry = Callable[..., Awaitable[Any]]
"""Calls the method of this name, with these arguments, of the endpoint's `AdapterRegistry`, from wherever a request arrives."""


class AdapterRegistry:
    """Keeps the table of adapters. Changes are made one after another; only the wait for requests under way is not in the line.

    Args:
        table: that the endpoint starts with.
        places: adapters that an engine can hold at once; None for any number.
        broadcast: reaches the engines.
    """

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
        """Load an adapter into all engines, to the end even if who asked for it hangs up.

        Args:
            name: of the adapter.
            path: its folder, which all engines can read.
            replaces: whether it may take the name of another adapter, whose requests go on with that one and are waited for.

        Raises:
            RefusalError: the name is taken, no place is left, or an engine cannot load it. Nothing has changed then.
        """
        await asyncio.shield(self._load(name, path, replaces))

    async def unload(self, name: str) -> None:
        """Unload an adapter from all engines, once the requests that use it are over; new ones are refused at once.

        Raises:
            RefusalError: there is no such adapter.
        """
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
                raise RefusalError(404, f"lora_name {name[:80]!r}: no such adapter. GET /v1/models lists those that there are.")
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
