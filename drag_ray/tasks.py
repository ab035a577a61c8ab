"""Functions that Ray tasks compute."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from drag_ray.messages import show_messages
from drag_ray.nodes import find_seeing

_Result = TypeVar("_Result")
_TASK_ENVIRONMENT = {
    # Ray gives each task one CPU; Polars would start a thread for each CPU of the node.
    "POLARS_MAX_THREADS": "1",
    # Polars gives freed memory back after half a second, and spends a sixth of a task's time on getting it again.
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:10000,muzzy_decay_ms:10000",
}


def run_task(function: Callable[..., _Result], call: tuple[Any, ...], num_gpus: float) -> _Result:
    """The result of `function(*call)`, computed by a Ray task with a CPU and so many GPUs. What it raises is raised here."""
    import ray
    from ray.exceptions import RayTaskError

    task: Any = ray.remote(_call).options(num_cpus=1, num_gpus=num_gpus)
    try:
        return ray.get(task.remote(function, call))
    except RayTaskError as error:
        raise error.cause from error


def _call(function: Callable[..., _Result], call: tuple[Any, ...]) -> _Result:
    """Ray brings to the driver what a worker prints."""
    show_messages()
    return function(*call)


def run_tasks(function: Callable[..., _Result], calls: Sequence[tuple[Any, ...]], folder: Path) -> Iterator[_Result]:
    """The result of `function(*call)` for each call in its order, computed by Ray tasks that take a CPU each.

    Only as many results as keep the CPUs busy are on their way at once. A single call is made here, without Ray.
    What a call raises is raised here.

    Args:
        folder: in which the calls read and write; nodes that do not see it are given none.

    Raises:
        ConfigError: no node with a CPU sees the folder.
    """
    if len(calls) <= 1:
        yield from (function(*call) for call in calls)
        return
    import ray
    from ray.exceptions import RayTaskError

    options = {"num_cpus": 1, "label_selector": find_seeing(folder).selector, "runtime_env": {"env_vars": _TASK_ENVIRONMENT}}
    task = ray.remote(function).options(**options)
    pending: deque[Any] = deque()
    try:
        for call in calls:
            if len(pending) > int(ray.cluster_resources().get("CPU", 1)):
                yield ray.get(pending.popleft())
            pending.append(task.remote(*call))
        while pending:
            yield ray.get(pending.popleft())
    except RayTaskError as error:
        raise error.cause from error
