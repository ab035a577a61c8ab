"""A function in two processes that train together."""

from collections.abc import Callable
from multiprocessing import set_forkserver_preload
from typing import Any

from torch.multiprocessing.spawn import start_processes


def run_in_two(train: Callable[..., None], *arguments: Any) -> None:
    """Call the function with 0, or 1, and the arguments. All such processes are forked from one that has imported what trains."""
    set_forkserver_preload(["drag_ray.finetune.trainer"])
    start_processes(train, arguments, nprocs=2, start_method="forkserver")
