"""Workers of a scripted engine, and what their chunks come to."""

import asyncio
import dataclasses

from drag_ray.engine.generate import GenerateFn
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.worker import RolloutWorker


def build_worker(options: WorkerOptions, engine: GenerateFn) -> RolloutWorker:
    return RolloutWorker(dataclasses.replace(options, build_engine=lambda config, images, adapters: engine))


def run_chunks(worker: RolloutWorker, chunks: list) -> list[dict]:
    async def run_chunk(chunk: object) -> list[dict]:
        return [row async for table in worker(chunk) for row in table.to_pylist()]  # type: ignore[arg-type]

    async def run_all() -> list[dict]:
        return [row for rows in await asyncio.gather(*(run_chunk(chunk) for chunk in chunks)) for row in rows]

    return asyncio.run(run_all())
