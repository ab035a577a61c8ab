"""The processes that train: how many there are, and what each takes of its node."""

import math
from dataclasses import dataclass

from drag_ray.cluster.nodes import SharedPathNodes

_CPU_ENVIRONMENT = {
    # Each step asks for the same large blocks again. glibc would give them back to the system every time, and the
    # system would clear them every time: 110 instead of 79 tokens a second on two cores.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "-1",
    # Ray's own processes need the cores too: a thread that spins while it waits takes them from the one it waits for.
    "OMP_WAIT_POLICY": "PASSIVE",
}
_GPU_ENVIRONMENT = {
    # Batches are of many lengths, and blocks that cannot grow are kept for each: the recipe's SFT had 48 GiB without, 40 with it.
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
}


@dataclass(frozen=True)
class Workers:
    """Training processes that are alike: `num_cpus` cores each, and a GPU if `use_gpu` says so."""

    num_workers: int
    num_cpus: int
    use_gpu: bool

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of each."""
        return _GPU_ENVIRONMENT if self.use_gpu else _CPU_ENVIRONMENT

    def describe(self) -> str:
        """The number of workers and what each takes, in words."""
        return f"{self.num_workers} worker(s), each {self.num_cpus} CPU{' and 1 GPU' if self.use_gpu else ''}"

    def list_missing(self, seeing: SharedPathNodes) -> dict[str, int]:
        """CPUs and GPUs that these nodes lack for all workers."""
        wanted = {"CPU": self.num_workers * self.num_cpus, "GPU": self.num_workers if self.use_gpu else 0}
        there = {"CPU": seeing.num_cpus, "GPU": seeing.num_gpus}
        return {unit: amount - there[unit] for unit, amount in wanted.items() if amount > there[unit]}


def size_workers(wanted: int, seeing: SharedPathNodes, *, use_gpu: bool) -> Workers:
    """One worker a GPU, or one on CPUs, where it is not said how many are wanted.

    On CPUs each takes its share of the largest node, as if they were spread evenly.

    Args:
        wanted: 0 where nothing is said.
        seeing: the nodes that they may run on; none where the cluster has yet to grow.
    """
    if use_gpu:
        return Workers(wanted or max(1, seeing.num_gpus), 1, True)
    num_workers = wanted or 1
    largest = max((node.cpus for node in seeing.nodes), default=1)
    return Workers(num_workers, max(1, largest // math.ceil(num_workers / max(1, len(seeing.nodes)))), False)
