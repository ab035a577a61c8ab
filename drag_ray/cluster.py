"""The one place that connects to Ray."""

import contextlib
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pydantic import Field

from drag_ray.config import BaseConfig
from drag_ray.errors import ConfigError


class ClusterConfig(BaseConfig):
    """Where Ray runs."""

    address: str = ""
    """a running cluster's address, `auto` to find one; empty starts a local Ray (or uses the submitted job's cluster)"""
    num_cpus: int = 0
    """CPUs of a local Ray; 0 takes all"""
    dashboard_port: int = Field(default=0, ge=0, le=65_535)
    """port of a local Ray's dashboard; 0 takes 8265, or the next one that is free"""


def is_submitted_job() -> bool:
    """True inside a driver that `ray job submit` started."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


_ENVIRONMENT = {
    # Ray 2.60 turns token authentication on for some of its commands and not for others; the cluster's
    # owner decides with this variable, and a local Ray listens on the loopback address alone.
    "RAY_AUTH_MODE": "disabled",
    # Ray's print patch makes `datasets` disassemble every function that it hashes into the log.
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    # A submitted job may bring a runtime environment of its own; ours keeps the values that it set.
    "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",
    # What Ray logs of an error, more than a thousand lines, is in what it raises too, and the stages say that in a sentence.
    "RAY_DATA_LOG_LEVEL": "CRITICAL",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
}
_TASK_ENVIRONMENT = {
    # Ray gives each task one CPU; Polars would start a thread for each CPU of the node.
    "POLARS_MAX_THREADS": "1",
    # Polars gives freed memory back after half a second, and spends a sixth of a task's time on getting it again.
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:10000,muzzy_decay_ms:10000",
}
_WORKER_ENVIRONMENT = {
    # What the stages print is enough; engines and trainers speak up when something is wrong.
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "DATASETS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "DS_LOG_LEVEL": "error",
}
"""Defaults for the processes that Ray starts. A variable that is set where the job starts goes before."""


@contextlib.contextmanager
def connect(config: ClusterConfig) -> Iterator[None]:
    """Connect to Ray, print the dashboard's address, and disconnect at the end.

    Raises:
        ConfigError: no Ray answers at the configured address, or a local one does not start.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import ray

    runtime_env = {"env_vars": {name: os.environ.get(name, value) for name, value in _WORKER_ENVIRONMENT.items()}}
    # Without an address Ray would look for a cluster that was once started here, and wait for one that is gone.
    address = config.address or ("auto" if is_submitted_job() else "local")
    options = {}
    if address == "local":
        port = config.dashboard_port or None  # Ray insists on a port that it is given
        options = {"num_cpus": config.num_cpus or None, "include_dashboard": True, "dashboard_port": port}
    try:
        context = ray.init(
            address=address, logging_level=logging.WARNING, ignore_reinit_error=True, runtime_env=runtime_env, **options
        )
    except (ConnectionError, ValueError) as error:
        if address == "local":
            raise ConfigError(f"no Ray could be started on this machine: {error}") from error
        raise ConfigError(
            f"cluster.address {config.address!r}: no Ray answers there ({error}). "
            "Start one with `ray start --head`, or leave the option empty."
        ) from error
    if context.dashboard_url:
        print(f"Ray dashboard: http://{context.dashboard_url}", flush=True)
    try:
        yield
    finally:
        ray.shutdown()


def count_gpus() -> int:
    """GPUs of the cluster at this moment."""
    import ray

    return int(ray.cluster_resources().get("GPU", 0))


def takes_gpus(device: str) -> bool:
    """What a `device` option (auto, cpu, gpu) means on this cluster: auto takes GPUs if there is one at this moment."""
    return device == "gpu" or (device == "auto" and count_gpus() > 0)


def run_tasks(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """The result of `function(*call)` for each call in its order, computed by Ray tasks that take a CPU each.

    Only as many results as keep the CPUs busy are on their way at once.  A single call is made here, without Ray.
    What a call raises is raised here.
    """
    if len(calls) == 1:
        yield function(*calls[0])
        return
    import ray
    from ray.exceptions import RayTaskError

    task = ray.remote(function).options(num_cpus=1, runtime_env={"env_vars": _TASK_ENVIRONMENT})
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
