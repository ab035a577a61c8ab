"""The nodes of the cluster: what each has, and what of it is free."""

import os
from typing import Any, NamedTuple

from drag_ray.cluster import is_connected

KEEPER_NAME = "engine_keeper"
"""of the actor that keeps a job's engines"""
KEPT_SHARE, _OTHER_SHARE = 0.9, 0.1
"""of a GPU: for all engines that are kept on it, and for who works while they rest, of which Ray knows nothing. Beside
up to eight engines that share a GPU one more does not fit"""


class NodeResources(NamedTuple):
    """CPU cores and GPUs of a node, whoever uses them."""

    cpus: int
    gpus: int


def list_nodes() -> list[NodeResources]:
    """The nodes of the cluster that are alive at this moment."""
    import ray

    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [NodeResources(int(resources.get("CPU", 0)), int(resources.get("GPU", 0))) for resources in alive]


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
    """What a `device` option (auto, cpu, gpu) means on this cluster: auto takes GPUs if there is one at this moment."""
    return device == "gpu" or (device == "auto" and count_gpus() > 0)


def find_keeper() -> Any:
    """The actor that keeps this job's engines (see `rollout.kept_engines`); None where none are kept."""
    import ray

    try:
        return ray.get_actor(KEEPER_NAME)
    except ValueError:
        return None


def free_gpus() -> float:
    """Have the engines that this job keeps free their GPUs, until they are borrowed again.

    Returns:
        What a process may ask Ray for of each GPU.
    """
    import ray

    keeper = find_keeper()
    return _OTHER_SHARE if keeper is not None and ray.get(keeper.rest.remote()) else 1
