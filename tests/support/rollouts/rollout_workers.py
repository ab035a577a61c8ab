"""Workers of a scripted engine, and what their chunks come to."""

import asyncio
import dataclasses

from drag_ray.engine.generate import GenerateFn
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.worker import RolloutWorker


def build_worker(options: WorkerOptions, engine: GenerateFn) -> RolloutWorker:
    return RolloutWorker(dataclasses.replace(options, build_engine=lambda config, images, adapters: engine))


def run_chunks(worker: RolloutWorker, chunks: list) -> list[dict]:
    async def run_all() -> list[dict]:
        return [row for table in await asyncio.gather(*map(worker, chunks)) for row in table.to_pylist()]

    return asyncio.run(run_all())
