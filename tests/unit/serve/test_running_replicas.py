"""Which replicas run, and where those listen that listen for themselves, as Ray Serve's controller tells it."""

from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve import context

from drag_ray.serve.ingress.proxy import RunningReplicas, find_running_replicas


def describe(targets: dict[str, tuple[str, int]], states: dict[str, str]) -> dict[str, Any]:
    replicas = [{"actor_name": name, "state": state} for name, state in states.items()]
    groups = [
        {"protocol": "HTTP", "targets": [{"name": name, "ip": ip, "port": port} for name, (ip, port) in targets.items()]},
        {"protocol": "gRPC", "targets": [{"name": "one", "ip": "127.0.0.1", "port": 9}]},
    ]
    return {"applications": {"drag_ray": {"deployments": {"openai": {"replicas": replicas}}}}, "target_groups": groups}


@pytest.mark.parametrize(
    ("details", "found"),
    [
        (
            describe({"one": ("127.0.0.1", 30000), "two": ("::1", 30001)}, {"one": "RUNNING", "two": "RUNNING"}),
            RunningReplicas(2, ("127.0.0.1:30000", "[::1]:30001")),
        ),
        # One that starts, and one that ends, take no requests.
        (
            describe(
                {"one": ("10.0.0.1", 30000), "two": ("10.0.0.2", 1)}, {"one": "RUNNING", "two": "STOPPING", "new": "STARTING"}
            ),
            RunningReplicas(1, ("10.0.0.1:30000",)),
        ),
        # A controller that has come again asks the replicas that it finds.
        (describe({"one": ("10.0.0.1", 30000)}, {"one": "RECOVERING"}), RunningReplicas(1, ("10.0.0.1:30000",))),
        # None listens for itself: the targets are proxies.
        (describe({"SERVE_PROXY_ACTOR": ("127.0.0.1", 8000)}, {"one": "RUNNING"}), RunningReplicas(1)),
        (describe({"SERVE_PROXY_ACTOR": ("127.0.0.1", 8000)}, {"one": "STARTING"}), RunningReplicas(0)),
        ({"applications": {}, "target_groups": []}, None),
    ],
)
def test_running_replicas_are_found_with_their_own_addresses(
    details: dict[str, Any], found: RunningReplicas | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "_get_global_client", lambda: SimpleNamespace(get_serve_details=lambda: details))
    assert find_running_replicas() == found
