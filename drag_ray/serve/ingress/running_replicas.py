"""Which replicas of Ray Serve take requests, and whether this process is one."""

from dataclasses import dataclass
from typing import Any

_TAKE_REQUESTS = {"RUNNING", "RECOVERING"}
"""States of replicas. A controller that was killed looks, once it is there again, at those that it finds before they run."""


@dataclass(frozen=True)
class RunningReplicas:
    """Replicas of Ray Serve's applications that take requests.

    Attributes:
        addresses: `HOST:PORT` of those among them that listen for themselves.
    """

    number: int
    addresses: tuple[str, ...] = ()


def find_running_replicas() -> RunningReplicas | None:
    """The replicas that run; None where there is no application. Asks Ray Serve's controller, and waits for it."""
    from ray.serve.context import _get_global_client  # pyright: ignore[reportPrivateUsage]

    client = _get_global_client()
    if client is None:
        return None
    details = client.get_serve_details()
    deployments = [
        deployment for application in details["applications"].values() for deployment in application["deployments"].values()
    ]
    if not deployments:
        return None
    running = {
        replica["actor_name"]
        for deployment in deployments
        for replica in deployment["replicas"]
        if replica["state"] in _TAKE_REQUESTS
    }
    targets = [target for group in details["target_groups"] for target in group["targets"] if group["protocol"] == "HTTP"]
    # Where no replica listens for itself, the targets are Ray Serve's proxies.
    return RunningReplicas(len(running), tuple(_join_address(target) for target in targets if target["name"] in running))


def _join_address(target: dict[str, Any]) -> str:
    host, port = target["ip"], target["port"]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_in_replica() -> bool:
    """Whether this process is a replica of a deployment of Ray Serve."""
    from ray import serve
    from ray.serve.exceptions import RayServeException

    try:
        serve.get_replica_context()
    except RayServeException:
        return False
    return True
