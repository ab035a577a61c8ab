"""The nodes of the cluster: what each has, and what of it is free."""

import logging
import os
import uuid
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from drag_ray.cluster.connection import is_connected
from drag_ray.errors import ConfigError
from drag_ray.storage.file_access import create_mark

_logger = logging.getLogger(__name__)

ENGINE_POOL_NAME = "engine_pool"
"""of the actor that keeps a job's engines"""
KEPT_SHARE, OTHER_SHARE = 0.9, 0.1
"""of a GPU: for all engines that are kept on it, and for who works while they rest, of which Ray knows nothing. Beside
up to eight engines that share a GPU one more does not fit"""
_NODE_LABEL = "ray.io/node-id"
_ANSWER_S = 60
"""in which a node tells what it sees; a busy one starts a process first"""


class NodeResources(NamedTuple):
    """CPU cores and GPUs of a node, whoever uses them."""

    cpus: int
    gpus: int


def list_nodes() -> list[NodeResources]:
    """The nodes of the cluster that are alive at this moment."""
    import ray

    return [_read_resources(node) for node in ray.nodes() if node["Alive"]]


def _read_resources(node: dict[str, Any]) -> NodeResources:
    return NodeResources(int(node["Resources"].get("CPU", 0)), int(node["Resources"].get("GPU", 0)))


class SharedPathNodes(NamedTuple):
    """The nodes that see a folder: what each has, their selector for Ray (None where all see it that have CPUs, or GPUs) and
    names."""

    nodes: tuple[NodeResources, ...]
    selector: dict[str, str] | None
    names: tuple[str, ...] = ()

    @property
    def num_cpus(self) -> int:
        """CPU cores of them all."""
        return sum(node.cpus for node in self.nodes)

    @property
    def num_gpus(self) -> int:
        """GPUs of them all."""
        return sum(node.gpus for node in self.nodes)


def find_seeing(folder: Path, *, use_gpu: bool = False) -> SharedPathNodes:
    """The nodes with a CPU, or a GPU, that see what this process writes into a folder.

    Nodes that come later, or do not answer now, count as others do not. While the nodes are the same, they are asked once. Raises
    ConfigError where no node that has a CPU, or a GPU, sees it, and ArtifactError where nothing can be written there.
    """
    import ray

    here = ray.get_runtime_context().get_node_id()
    unit = "GPU" if use_gpu else "CPU"
    having = {node["NodeID"]: _read_resources(node) for node in ray.nodes() if node["Alive"] and node["Resources"].get(unit)}
    others = frozenset(having) - {here}
    seeing = {name: having[name] for name in having if name == here or name in _find_seeing_others(folder, others)}
    if having and not seeing:
        raise ConfigError(
            f"no node that has a {unit} sees {folder}, where this stage works. Choose a --run-dir on storage that nodes share, "
            f"or start the stage on a node with {unit}s."
        )
    if len(seeing) == len(having):
        return SharedPathNodes(tuple(seeing.values()), None, tuple(seeing))
    _logger.warning(f"{len(having) - len(seeing)} of {len(having)} nodes do not see {folder}, and are given no work in it")
    return SharedPathNodes(tuple(seeing.values()), {_NODE_LABEL: f"in({','.join(sorted(seeing))})"}, tuple(seeing))


@lru_cache
def _find_seeing_others(folder: Path, nodes: frozenset[str]) -> frozenset[str]:
    """Those of the nodes that see what this process writes into a folder."""
    if not nodes:
        return nodes
    mark = folder / f".seen-{uuid.uuid4().hex}"
    create_mark(mark)
    try:
        return frozenset(_ask_nodes(nodes, mark))
    finally:
        mark.unlink()


def _ask_nodes(nodes: Collection[str], mark: Path) -> list[str]:
    """Those of the nodes that see a file."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task: Any = ray.remote(num_cpus=0, max_retries=0)(Path.exists)
    asked: dict[Any, str] = {
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(mark): node for node in nodes
    }
    answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=_ANSWER_S)
    return [asked[answer] for answer in answered if _is_true(answer)]


def _is_true(answer: Any) -> bool:
    """True if a node has said yes; one that was lost meanwhile has not."""
    import ray
    from ray.exceptions import RayError

    try:
        return ray.get(answer)
    except RayError:
        return False


def count_gpus() -> int:
    """GPUs of the cluster at this moment."""
    import ray

    return int(ray.cluster_resources().get("GPU", 0))


def count_cpus() -> int:
    """CPU cores of the cluster at this moment."""
    import ray

    return int(ray.cluster_resources().get("CPU", 0))


def count_machines() -> tuple[int, int]:
    """GPUs and CPU cores that a stage could use at this moment: those of the cluster, or this machine's cores without Ray."""
    return (count_gpus(), count_cpus()) if is_connected() else (0, os.cpu_count() or 1)


def takes_gpus(device: str) -> bool:
    """True if a `device` option (auto, cpu, gpu) means GPUs on this cluster: auto takes GPUs if there is one at this moment."""
    return device == "gpu" or (device == "auto" and count_gpus() > 0)


def find_engine_pool() -> Any:
    """The actor that keeps this job's engines (see `rollout.engine_pool`); None where none are kept."""
    import ray

    try:
        return ray.get_actor(ENGINE_POOL_NAME)
    except ValueError:
        return None


def let_engines_rest() -> None:
    """Have the engines that this job keeps begin to free their GPUs, which takes them seconds. This process goes on."""
    engine_pool = find_engine_pool()
    if engine_pool is not None:
        engine_pool.rest.remote()


def end_engines() -> None:
    """End the engines that this job keeps: who takes whole GPUs may find more of them there than it leaves to engines."""
    import ray

    if (engine_pool := find_engine_pool()) is not None:
        ray.get(engine_pool.close.remote())


def free_gpus() -> float:
    """Have the engines that this job keeps free their GPUs, until they are borrowed again. Returns what a process may ask Ray for
    of each GPU."""
    import ray

    engine_pool = find_engine_pool()
    return OTHER_SHARE if engine_pool is not None and ray.get(engine_pool.rest.remote()) else 1
