"""The one place that connects to Ray."""

import contextlib
import logging
import os
from collections.abc import Iterator

from drag_ray.config import BaseConfig
from drag_ray.errors import ConfigError


class ClusterConfig(BaseConfig):
    """Where Ray runs."""

    address: str = ""
    """a running cluster's address, `auto` to find one; empty starts a local Ray (or uses the submitted job's cluster)"""
    num_cpus: int = 0
    """CPUs of a local Ray; 0 takes all"""
    dashboard_port: int = 8265
    """port of a local Ray's dashboard"""


def is_submitted_job() -> bool:
    """True inside a driver that `ray job submit` started."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


@contextlib.contextmanager
def connect(config: ClusterConfig) -> Iterator[None]:
    """Connect to Ray, print the dashboard's address, and disconnect at the end.

    Raises:
        ConfigError: no Ray answers at the configured address.
    """
    # Ray 2.60 turns token authentication on for some of its commands and not for others; the cluster's
    # owner decides with this variable, and a local Ray listens on the loopback address alone.
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    # Ray's print patch makes `datasets` disassemble every function that it hashes into the log.
    os.environ.setdefault("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")
    import ray

    address = config.address or ("auto" if is_submitted_job() else None)
    options = (
        {}
        if address
        else {"num_cpus": config.num_cpus or None, "include_dashboard": True, "dashboard_port": config.dashboard_port}
    )
    try:
        context = ray.init(
            address=address, logging_level=logging.WARNING, log_to_driver=True, ignore_reinit_error=True, **options
        )
    except (ConnectionError, ValueError) as error:
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
