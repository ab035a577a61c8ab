"""Functions that Ray tasks compute, and rows that go through models in Ray's actors."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from drag_ray.messages import show_messages
from drag_ray.nodes import find_seeing, free_gpus, takes_gpus

_Result = TypeVar("_Result")
_CPUS_PER_MODEL = 4
"""More threads gain less on a small model, and each process holds the model."""
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


def map_rows(
    model: Callable[..., Callable[[dict[str, Any]], dict[str, Any]]],
    arguments: tuple[Any, ...],
    rows: Sequence[dict[str, Any]],
    device: str,
    folder: Path,
) -> Iterator[dict[str, Any]]:
    """What a model makes of each row, in no order, in one process a GPU, or in as many as the CPUs hold.

    The engines that this job keeps rest where a GPU is needed.

    Args:
        model: makes what a row is given to, once in each process.
        arguments: that it is made from.
        rows: of values that Arrow has types for.
        device: auto, cpu or gpu.
        folder: in which it reads and writes; nodes that do not see it are given no rows.

    Raises:
        ConfigError: no node with a CPU, or a GPU, sees the folder.
    """
    import ray.data

    if not rows:
        return
    number, resources = _plan_processes(device, folder)
    ray.data.DataContext.get_current().enable_progress_bars = False
    mapped: Any = ray.data.from_items(list(rows), override_num_blocks=len(rows)).map(
        model,  # pyright: ignore[reportArgumentType] # a class, whose objects are called
        fn_constructor_args=arguments,
        compute=ray.data.ActorPoolStrategy(size=min(number, len(rows))),
        **resources,
    )
    yield from mapped.iter_rows()


def _plan_processes(device: str, folder: Path) -> tuple[int, dict[str, Any]]:
    """How many processes that each hold a model there are at once, and what each takes, as Ray Data names it."""
    use_gpu = takes_gpus(device)
    seeing = find_seeing(folder, use_gpu=use_gpu)
    if use_gpu:
        return max(1, seeing.num_gpus), {"num_gpus": free_gpus(), "label_selector": seeing.selector}
    each = max(1, min(_CPUS_PER_MODEL, max((node.cpus for node in seeing.nodes), default=1)))
    return max(1, sum(node.cpus // each for node in seeing.nodes)), {"num_cpus": each, "label_selector": seeing.selector}
