"""Engines that stay up between the stages of a pipeline, each in an actor of its own.

An engine takes a minute to start, and a stage of some thousand rollouts not much longer. So a pipeline keeps its engines: the
workers of one stage after the other borrow them, several workers one engine where it is faster than they, and give each the
adapters of their own policies. While a GPU has other work, its engines rest: their weights wait in main memory, and all else is
free. For an engine that has died another one is started when it is borrowed next.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from drag_ray.cluster.nodes import ENGINE_POOL_NAME, KEPT_SHARE, count_cpus, find_engine_pool
from drag_ray.corpus.image_store import ImageStores
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import Generation, ImageSource, Request
from drag_ray.engine.models.canary import read_canary
from drag_ray.engine.vllm import VllmEngine
from drag_ray.errors import DragRayError, EngineDiedError, TrainError
from drag_ray.rollout.folder import LOGS_DIR_NAME, log_to_file
from drag_ray.rollout.options import WorkerOptions, count_images, list_adapters, list_stores
from drag_ray.rollout.pool import Pool, share_engines

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineSpec:
    """The specification that an engine is started with. `config` is without what can change from stage to stage."""

    config: EngineConfig
    image_dirs: tuple[Path, ...]
    images_per_prompt: int
    adapter_places: int
    num_gpus: float

    @property
    def rests(self) -> bool:
        """True if it can free its GPU for others: Ray shares no more than one GPU, and a CPU's memory is not that short."""
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

    async def start(self, run_dir: Path) -> None:
        """Start the engine where that has not been done; what it prints goes to the logs of these rollouts. Raises ConfigError:
        see `VllmEngine`; EngineDiedError where it does not start."""
        log_to_file(run_dir)
        if self._engine is None:
            self._engine = self._spec.start(self._stores)

    async def begin(self, offer: int, config: EngineConfig, adapters: Sequence[str], run_dir: Path) -> None:
        """See `VllmEngine.begin`; starts the engine, or another one where it has died, and wakes it. `offer`: the pool's; the
        first of the workers that share the engine in it begins for all of them. Raises TrainError where it does not write with
        what is in an adapter's folder, as the adapter's canary tells."""
        self._stores.roots = list_stores(run_dir, self._spec.image_dirs)
        async with self._changing:
            if self._engine is not None and self._engine.has_died:
                await self.close()
            elif self._begun == offer:
                return
            try:
                await self._wake(config, adapters, run_dir)
            except EngineDiedError:  # of one that has yet to notice
                await self.close()
                await self._wake(config, adapters, run_dir)
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

    async def _wake(self, config: EngineConfig, adapters: Sequence[str], run_dir: Path) -> None:
        await self.start(run_dir)
        assert self._engine is not None, "it has started"
        if self._at_rest:
            await self._engine.wake()
            self._at_rest = False
        await self._engine.begin(config, adapters)
        if await self._find_difference(adapters):
            await self._engine.begin(config, adapters)  # it loads them anew
            if difference := await self._find_difference(adapters):
                context = ray.get_runtime_context()
                raise TrainError(
                    f"the engine {context.get_actor_id()} of the node {context.get_node_id()} was given {difference}, at the "
                    "second try too. Likely it writes with an older adapter, or it reckons in another way (engine.dtype, "
                    "engine.load_format). Start the stage again: it goes on with this step."
                )

    async def _find_difference(self, adapters: Sequence[str]) -> str:
        """The first adapter that the engine does not write with, and how that shows; empty without."""
        assert self._engine is not None, "it has started"
        for adapter in adapters:
            if canary := await asyncio.to_thread(read_canary, Path(adapter)):
                found = await self._engine.score(canary.token_ids, adapter)
                if difference := canary.find_difference(found):
                    return f"{adapter} and is {difference}"
        return ""


_ADAPTER_PLACES = 4
"""adapters that a kept engine on a GPU has room for: as many as the recipe's evaluation compares, and those of its rounds"""
_MAX_REQUESTS = 100_000
"""at the same time; how many there are is for the workers to say"""
_CLOSE_S = 30
_CLOSE_ONE_S = 5


class EnginePool:
    """Knows the engines that are kept, all of one spec, and who has borrowed which."""

    def __init__(self, make: Callable[[EngineSpec], Any]) -> None:
        self._make = make
        self._spec: EngineSpec | None = None
        self._engines: list[Any] = []
        self._borrowers: dict[str, Any] = {}
        self._workers_per_engine = 1
        self._offer = 0

    async def resize(self, spec: EngineSpec, num_engines: int, workers_per_engine: int, run_dir: Path) -> int:
        """Take back all engines, end them if they are of another spec, and let at least `num_engines` start or wake. Returns how
        many of them were there already."""
        if spec != self._spec:
            await self.close()
            self._spec = spec
        self._borrowers.clear()
        self._workers_per_engine = workers_per_engine
        self._offer += 1
        num_kept = len(self._engines)
        self._engines += [self._make(spec) for _ in range(num_kept, num_engines)]
        for engine in self._engines:
            engine.start.remote(run_dir)  # who borrows it is told what goes wrong
        return min(num_kept, num_engines)

    async def acquire(self, borrower: str) -> "Loan":
        """An engine that no more workers share than may: the same one for who asks again, unless its process is gone."""
        while not await _is_alive(engine := self._assign(borrower)):
            self._engines = [kept for kept in self._engines if kept != engine]
            self._borrowers = {name: lent for name, lent in self._borrowers.items() if lent != engine}
        return Loan(engine, self._offer)

    def _assign(self, borrower: str) -> Any:
        if borrower not in self._borrowers:
            assert self._spec is not None, "engines are offered before they are lent"
            lent = list(self._borrowers.values())
            engine = min(self._engines, key=lent.count, default=None)
            if engine is None or lent.count(engine) >= self._workers_per_engine:
                engine = self._make(self._spec)
                self._engines.append(engine)
            self._borrowers[borrower] = engine
        return self._borrowers[borrower]

    async def rest(self) -> bool:
        """Free the GPUs, and say whether engines stay on them; they are ended where they cannot rest."""
        if self._spec is None or not self._spec.num_gpus:
            return False
        if not self._spec.rests:
            await self.close()
            return False
        for engine in self._engines:
            with contextlib.suppress(RayError):  # one that has died has freed it too
                await engine.rest.remote()
        return bool(self._engines)

    async def close(self) -> None:
        """End all engines; one that does not end by itself, as it still starts, is killed."""
        for engine in self._engines:
            with contextlib.suppress(RayError, TimeoutError):
                await asyncio.wait_for(engine.close.remote(), _CLOSE_ONE_S)
            ray.kill(engine)
        self._engines, self._spec = [], None
        self._borrowers.clear()


class Loan(NamedTuple):
    """An engine's actor, and the number of the offer that a worker has it from."""

    engine: Any
    offer: int


async def _is_alive(engine: Any) -> bool:
    """True if an engine's process answers; it does when what it is asked before is done."""
    try:
        await engine.__ray_ready__.remote()
    except RayError:
        return False
    return True


class BorrowedEngine:
    """The engine of an actor, behind `GenerateFn`."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def __call__(self, request: Request) -> Generation:
        """As `VllmEngine`."""
        try:
            return await self._actor.generate.remote(request)
        except RayError as error:
            raise _find_cause(error) from None


@contextlib.contextmanager
def keep_engines() -> Generator[None]:
    """Keep the engines of all stages that run within this context, in this job."""
    # With the driver, so that no other node's end is theirs.
    here: Any = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    make: Any = ray.remote(num_cpus=0, scheduling_strategy=here)(EnginePool)
    engine_pool = make.options(name=ENGINE_POOL_NAME).remote(_make_actor)
    try:
        yield
    finally:
        with contextlib.suppress(RayError):
            ray.get(engine_pool.close.remote(), timeout=_CLOSE_S)
        ray.kill(engine_pool)


def borrow_engines(options: WorkerOptions, pool: Pool, workers_per_engine: int) -> tuple[WorkerOptions, Pool]:
    """Let workers borrow their engines, where this job keeps any: these start now, while the driver goes on. Returns both for
    workers that borrow, or as they were."""
    engine_pool = find_engine_pool()
    if engine_pool is None or options.build_engine is not VllmEngine:
        return options, pool
    spec = _build_spec(options, pool)
    pool = share_engines(pool, workers_per_engine, count_cpus())
    num_kept: int = ray.get(engine_pool.resize.remote(spec, pool.num_engines, pool.workers_per_engine, options.run_dir))
    if num_kept < pool.num_engines:
        say_start(pool.num_engines - num_kept, options)
    concurrent_rollouts = math.ceil(options.concurrent_rollouts / pool.workers_per_engine)
    build_engine = partial(_borrow, engine_pool, options.run_dir)
    return replace(options, build_engine=build_engine, borrows_engine=True, concurrent_rollouts=concurrent_rollouts), pool


def say_start(num_engines: int, options: WorkerOptions) -> None:
    """Say that engines start, which is silent and takes a minute or two."""
    logs_dir = options.run_dir / LOGS_DIR_NAME
    _logger.info(f"engines: starting {num_engines} with {options.engine.model}, in a minute or two; their output: {logs_dir}")


def _make_actor(spec: EngineSpec) -> Any:
    actor: Any = ray.remote(EngineActor)
    resources = {"num_cpus": 0, "num_gpus": spec.num_gpus}
    return actor.options(**resources, max_concurrency=_MAX_REQUESTS).remote(spec)


def _build_spec(options: WorkerOptions, pool: Pool) -> EngineSpec:
    # An adapter that may come costs an engine on a CPU several times its speed.
    places = max(len(list_adapters(options)), _ADAPTER_PLACES if pool.num_gpus else 0)
    return EngineSpec(
        config=options.engine.model_copy(update={"adapter": "", "logprobs": False, "seeds": False}),
        image_dirs=options.image_dirs,
        images_per_prompt=count_images(options),
        adapter_places=places,
        num_gpus=pool.num_gpus * KEPT_SHARE if pool.num_gpus <= 1 else pool.num_gpus,
    )


def _borrow(
    engine_pool: Any, run_dir: Path, config: EngineConfig, images: ImageSource | None, adapters: Sequence[str]
) -> BorrowedEngine:
    """`WorkerOptions.build_engine` for a worker that borrows; the engine opens images itself."""
    try:
        loan: Loan = ray.get(engine_pool.acquire.remote(ray.get_runtime_context().get_actor_id()))
        ray.get(loan.engine.begin.remote(loan.offer, config, adapters, run_dir))
    except RayError as error:
        raise _find_cause(error) from None
    return BorrowedEngine(loan.engine)


def _find_cause(error: RayError) -> Exception:
    """The error that an engine's actor raised, or that it is gone."""
    if isinstance(error, RayTaskError):
        return error.cause if isinstance(error.cause, DragRayError) else error
    return EngineDiedError(f"an engine's process is gone: {str(error).strip().splitlines()[0]}")
