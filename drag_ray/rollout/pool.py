"""The pool of a collection: the number of its engines, and what each takes of the cluster."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from drag_ray.cluster.nodes import NodeResources
from drag_ray.engine.config import EngineConfig
from drag_ray.errors import ConfigError
from drag_ray.rollout.config import RolloutConfig

_CORES_PER_WORKER = 2
"""a worker keeps one busy, and the engine's two processes and the other stages' tasks want theirs"""
_MAX_WORKERS = 8


@dataclass(frozen=True, slots=True)
class Pool:
    """Engines at the start and at most; the CPUs and GPUs that one reserves, engines that share a GPU a part of it each.
    `workers_per_engine`: workers that share an engine which is not in the process of one of them; each reserves the CPUs."""

    num_engines: int
    max_engines: int
    num_cpus: float
    num_gpus: float
    workers_per_engine: int = 1

    def count_room(self, nodes: Sequence[NodeResources]) -> int:
        """Engines of which each has all that it takes on one of these nodes, if nobody else uses them."""
        return sum(self._count_on(node) for node in nodes)

    def _count_on(self, node: NodeResources) -> int:
        of_gpus = node.gpus / self.num_gpus if self.num_gpus else math.inf
        return math.floor(round(min(node.cpus / self.num_cpus, of_gpus), 6))  # a part of a GPU is no exact number

    @property
    def num_workers(self) -> int:
        """Workers at the start."""
        return self.num_engines * self.workers_per_engine

    @property
    def max_workers(self) -> int:
        """Workers at most."""
        return self.max_engines * self.workers_per_engine


def size_pool(settings: RolloutConfig, engine: EngineConfig, *, use_gpu: bool, nodes: Sequence[NodeResources]) -> Pool:
    """The pool for a cluster that has these nodes now. The GPUs of an engine are of one node; engines that ask an endpoint take
    none. Raises ConfigError where the GPUs of no node suffice for one engine, or an engine is to have several GPUs and to share
    them."""
    if engine.backend == "openai":
        num_engines = settings.num_engines or 1
        return Pool(num_engines, max(num_engines, settings.max_engines), num_cpus=1, num_gpus=0)
    per_gpu, group = settings.engines_per_gpu, engine.tensor_parallel_size
    if per_gpu > 1 and group > 1:
        raise ConfigError(
            f"rollout.engines_per_gpu is {per_gpu} and engine.tensor_parallel_size {group}: an engine either shares a GPU or "
            "uses several. Set one of them to 1."
        )
    num_engines = settings.num_engines or (sum(node.gpus // group for node in nodes) * per_gpu if use_gpu else 1)
    if not num_engines:
        most = max((node.gpus for node in nodes), default=0)
        raise ConfigError(
            f"engine.tensor_parallel_size is {group}, and no node of the cluster has more than {most} GPUs. "
            "Lower it, or set rollout.num_engines if the cluster grows on demand."
        )
    return Pool(num_engines, max(num_engines, settings.max_engines), num_cpus=1, num_gpus=group / per_gpu if use_gpu else 0)


def share_engines(pool: Pool, workers_per_engine: int, num_cpus: int) -> Pool:
    """The pool whose engines are in processes of their own, on a cluster with this many CPU cores."""
    workers = workers_per_engine or max(1, min(_MAX_WORKERS, num_cpus // pool.num_engines // _CORES_PER_WORKER))
    return replace(pool, num_gpus=0, workers_per_engine=workers)


def share_gpu(engine: EngineConfig, engines_per_gpu: int) -> EngineConfig:
    """The options of one of the engines that share a GPU and what `engine` may take of its memory."""
    return engine.model_copy(update={"gpu_memory_utilization": engine.gpu_memory_utilization / engines_per_gpu})


def share_cpus(engine: EngineConfig, pool: Pool, nodes: Sequence[NodeResources]) -> EngineConfig:
    """The options of one of the engines of a pool without GPUs, when all of them are there; as they are with one a node."""
    cores = [node.cpus for node in nodes if node.cpus]
    if pool.num_gpus or engine.backend != "vllm" or engine.cpu_threads or pool.max_engines <= len(cores) or not cores:
        return engine
    per_node = math.ceil(pool.max_engines / len(cores))
    return engine.model_copy(update={"cpu_threads": max(1, min(cores) // per_node)})
