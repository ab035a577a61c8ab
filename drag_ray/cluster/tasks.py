"""Functions that Ray tasks compute, and rows that go through models in Ray's actors."""

import pickle
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from drag_ray.cluster.nodes import find_seeing, free_gpus, takes_gpus
from drag_ray.errors import ConfigError, DragRayError
from drag_ray.messages import show_messages

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_CPUS_PER_MODEL = 4
"""More threads gain less on a small model, and each process holds the model."""
_WRITERS_PER_GPU = 4
"""Processes that make what a model on a GPU reads."""
_ROWS_PER_GPU = 2
"""Rows that a model on a GPU has at once: while it reads one, another is made ready for it."""
_TASK_ENVIRONMENT = {
    # Ray gives each task one CPU; Polars would start a thread for each CPU of the node.
    "POLARS_MAX_THREADS": "1",
    # Polars gives freed memory back after half a second, and spends a sixth of a task's time on getting it again.
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:10000,muzzy_decay_ms:10000",
}


def run_task(function: Callable[..., _Result], call: tuple[Any, ...], num_gpus: float) -> _Result:
    """The result of `function(*call)`, computed by a Ray task with a CPU and so many GPUs. What it raises is raised here."""
    import ray

    task: Any = ray.remote(_call).options(num_cpus=1, num_gpus=num_gpus)
    return take_result(task.remote(function, call))


def take_result(task: Any) -> Any:
    """The result of a task that was begun, by its reference. What it raises is raised here."""
    import ray
    from ray.exceptions import RayTaskError

    try:
        return ray.get(task)
    except RayTaskError as error:
        raise error.cause from error


def _call(function: Callable[..., _Result], call: tuple[Any, ...]) -> _Result:
    """Ray brings to the driver what a worker prints."""
    show_messages()
    return function(*call)


def run_tasks(function: Callable[..., _Result], calls: Sequence[tuple[Any, ...]], folder: Path) -> Iterator[_Result]:
    """The result of `function(*call)` for each call in its order, computed by Ray tasks that take a CPU each.

    Only as many results as keep the CPUs busy are on their way at once. A single call is made here, without Ray. What a call
    raises is raised here. Raises ConfigError where no node with a CPU sees the folder. `folder`: in which the calls read and
    write; nodes that do not see it are given none.
    """
    if len(calls) <= 1:
        yield from (function(*call) for call in calls)
        return
    import ray

    options = {"num_cpus": 1, "label_selector": find_seeing(folder).selector, "runtime_env": {"env_vars": _TASK_ENVIRONMENT}}
    task = ray.remote(function).options(**options)
    pending: deque[Any] = deque()
    for call in calls:
        if len(pending) > int(ray.cluster_resources().get("CPU", 1)):
            yield take_result(pending.popleft())
        pending.append(task.remote(*call))
    while pending:
        yield take_result(pending.popleft())


def map_parts(
    function: Callable[[Sequence[_Item]], Sequence[_Result]], items: Sequence[_Item], num_each: int, folder: Path
) -> Iterator[_Result]:
    """The results of a function that is given so many items at a time, in their order, by `run_tasks`."""
    calls = [(function, items[start : start + num_each]) for start in range(0, len(items), num_each)]
    for made in run_tasks(_apply, calls, folder):
        yield from made


def _apply(function: Callable[[_Item], _Result], item: _Item) -> _Result:
    """Call a function: what is no plain one, as a `partial`, is no task of Ray."""
    return function(item)


@dataclass(frozen=True)
class Step:
    """A step that rows go through: `made(*arguments)` is given each, and is made once in each process."""

    made: Callable[..., Callable[[dict[str, Any]], dict[str, Any]]]
    arguments: tuple[Any, ...]


class ItemStep(ABC):
    """A step of `map_items`, made by a `Step`: what the step before has made becomes what this one makes.

    In a row it is pickled, as Arrow has no types for what is in it. An error is left as text, as Ray would bury it."""

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        made, error = b"", row["error"]
        if not error:
            try:
                made = pickle.dumps(self.make(pickle.loads(row["made"])))
            except DragRayError as caught:
                error = str(caught)
        return {"place": row["place"], "made": made, "error": error}

    @abstractmethod
    def make(self, made: Any) -> Any:
        """The item for the next step."""


def map_items(steps: Sequence[Step], items: Sequence[Any], device: str, folder: Path) -> Iterator[tuple[int, Any]]:
    """The place of each item and what `ItemStep`s make of it, in no order; arguments as of `map_rows`. Raises ConfigError where a
    step cannot do its work, or what `map_rows` raises."""
    rows = [{"place": place, "made": pickle.dumps(item), "error": ""} for place, item in enumerate(items)]
    for row in map_rows(steps, rows, device, folder):
        if row["error"]:
            raise ConfigError(row["error"])
        yield row["place"], pickle.loads(row["made"])


class _Chain:
    """Several steps in one process."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._calls = [step.made(*step.arguments) for step in steps]

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        for call in self._calls:
            row = call(row)
        return row


def map_rows(steps: Sequence[Step], rows: Sequence[dict[str, Any]], device: str, folder: Path) -> Iterator[dict[str, Any]]:
    """The rows, of values that Arrow has types for, after steps, of which the last is a model, in no order, in one process a GPU,
    or in as many as the CPUs hold.

    Steps before a model on a GPU have processes of their own, so that it does not wait for what they make, and it is asked by two
    threads. The engines that this job keeps rest where a GPU is needed. Raises ConfigError where no node with a CPU, or a GPU,
    sees the folder; nodes that do not are given no rows."""
    import ray.data

    if not rows:
        return
    number, resources = _plan_processes(device, folder)
    ray.data.DataContext.get_current().enable_progress_bars = False
    mapped: Any = ray.data.from_items(list(rows), override_num_blocks=len(rows))
    if "num_gpus" in resources and len(steps) > 1:
        *before, last = steps
        # They ask for no CPU: with those that the models' processes have none may be left, and each would wait for the other.
        beside = {"num_cpus": 0, "label_selector": resources["label_selector"]}
        mapped = _map(mapped, before, min(_WRITERS_PER_GPU * number, len(rows)), beside)
        steps, resources = [last], resources | {"max_concurrency": _ROWS_PER_GPU}
    yield from _map(mapped, steps, min(number, len(rows)), resources).iter_rows()


def _map(rows: Any, steps: Sequence[Step], num_processes: int, options: dict[str, Any]) -> Any:
    import ray.data

    compute = ray.data.ActorPoolStrategy(size=num_processes, enable_true_multi_threading="max_concurrency" in options)
    return rows.map(_Chain, fn_constructor_args=(steps,), compute=compute, **options)


def _plan_processes(device: str, folder: Path) -> tuple[int, dict[str, Any]]:
    """The number of processes that each hold a model at once, and what each takes, as Ray Data names it."""
    use_gpu = takes_gpus(device)
    seeing = find_seeing(folder, use_gpu=use_gpu)
    if use_gpu:
        return max(1, seeing.num_gpus), {"num_gpus": free_gpus(), "label_selector": seeing.selector}
    each = max(1, min(_CPUS_PER_MODEL, max((node.cpus for node in seeing.nodes), default=1)))
    return max(1, sum(node.cpus // each for node in seeing.nodes)), {"num_cpus": each, "label_selector": seeing.selector}
