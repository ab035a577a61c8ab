"""One engine in a process of its own, which several workers may ask, and which can rest."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from drag_ray.corpus.image_store import ImageStores
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import Generation, ImageSource, Request
from drag_ray.engine.vllm import VllmEngine
from drag_ray.errors import EngineDiedError
from drag_ray.rollout import engine_logs
from drag_ray.rollout.options import list_stores


@dataclass(frozen=True)
class EngineSpec:
    """What an engine is started with. `config` is without what can change from stage to stage."""

    config: EngineConfig
    image_dirs: tuple[Path, ...]
    images_per_prompt: int
    adapter_places: int
    num_gpus: float

    @property
    def rests(self) -> bool:
        """Whether it can free its GPU for others: Ray shares no more than one GPU, and a CPU's memory is not that short."""
        return 0 < self.num_gpus < 1

    def start(self, stores: ImageStores) -> VllmEngine:
        """Start an engine in this process, which opens images in `stores` if it is to see any."""
        images = ImageSource(stores.open, self.images_per_prompt) if self.image_dirs else None
        return VllmEngine(self.config, images, adapter_places=self.adapter_places, rests=self.rests)


class EngineActor:
    """One engine in a process of its own."""

    def __init__(self, spec: EngineSpec) -> None:
        self._spec = spec
        self._stores = ImageStores(spec.image_dirs)
        self._engine: VllmEngine | None = None
        self._at_rest = False
        self._begun = 0
        self._changing = asyncio.Lock()

    async def start(self, run_dir: Path) -> VllmEngine:
        """Start the engine where that has not been done; what it prints goes to the logs of these rollouts.

        Raises:
            ConfigError: see `VllmEngine`.
            EngineDiedError: it does not start.
        """
        engine_logs.log_to_file(run_dir)
        if self._engine is None:
            self._engine = self._spec.start(self._stores)
        return self._engine

    async def begin(self, offer: int, config: EngineConfig, adapters: Sequence[str], run_dir: Path) -> None:
        """See `VllmEngine.begin`; starts the engine, or another one where it has died, and wakes it.

        Args:
            offer: the pool's; the first of the workers that share the engine in it begins for all of them.
        """
        self._stores.roots = list_stores(run_dir, self._spec.image_dirs)
        async with self._changing:
            if self._engine is not None and self._engine.has_died:
                await self.close()
            elif self._begun == offer:
                return
            try:
                await self._wake(await self.start(run_dir), config, adapters)
            except EngineDiedError:  # of one that has yet to notice
                await self.close()
                await self._wake(await self.start(run_dir), config, adapters)
            self._begun = offer

    async def generate(self, request: Request) -> Generation:
        """Draw a reply."""
        assert self._engine is not None, "an engine is begun before it is asked"
        return await self._engine(request)

    async def rest(self) -> None:
        """Free the GPU until it is begun again."""
        async with self._changing:
            if self._engine is not None and not self._at_rest:
                await self._engine.rest()
                self._at_rest = True

    async def close(self) -> None:
        """End the engine's processes."""
        if self._engine is not None:
            self._engine.close()
        self._engine, self._at_rest = None, False

    async def _wake(self, engine: VllmEngine, config: EngineConfig, adapters: Sequence[str]) -> None:
        if self._at_rest:
            await engine.wake()
            self._at_rest = False
        await engine.begin(config, adapters)
