"""Processes of Ray Serve are killed under an endpoint that is asked all the while, and come again."""

import time
from collections.abc import Iterator

import httpx
import psutil
import pytest
from endpoint_process import Endpoint, serve_run

ASKED = {"model": "base", "messages": [{"role": "user", "content": "Count."}], "max_tokens": 2}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    options = {"run-dir": tmp_path_factory.mktemp("run"), "cluster.num-cpus": 2, "engine.max-model-len": 512}
    with serve_run({**options, "engine.max-num-seqs": 4}) as endpoint:
        yield endpoint


def find_process(endpoint: Endpoint, name: str) -> psutil.Process | None:
    """The process of an actor, if it is there."""
    for process in endpoint.driver.children(recursive=True):
        try:
            if process.name().startswith(f"ray::{name}"[:15]):  # as much as Linux keeps
                return process
        except psutil.NoSuchProcess:
            continue
    return None


def ask(endpoint: Endpoint) -> int:
    """The status of an answer; 0 where nobody listens, or the connection is lost."""
    try:
        return httpx.post(f"{endpoint.url}/v1/chat/completions", json=ASKED, timeout=120).status_code
    except httpx.TransportError:
        return 0


def kill_and_ask(endpoint: Endpoint, name: str) -> list[int]:
    """The statuses of one request after the other, from when a process was killed until another one has its place for a while."""
    assert ask(endpoint) == 200
    killed = find_process(endpoint, name)
    assert killed, f"no process {name}"
    killed.kill()
    statuses, deadline, come_at = list[int](), time.monotonic() + 200, 0.0
    while not come_at or time.monotonic() < come_at + 10:
        assert time.monotonic() < deadline, "none takes its place"
        statuses.append(ask(endpoint))
        time.sleep(0.1)
        found = find_process(endpoint, name)
        if found and found != killed and not come_at:
            come_at = time.monotonic()
    return statuses


def test_requests_are_answered_while_the_controller_is_away(endpoint: Endpoint) -> None:
    assert set(kill_and_ask(endpoint, "ServeController")) == {200}


def test_a_proxy_that_is_killed_comes_again_and_nobody_is_told_anything_wrong(endpoint: Endpoint) -> None:
    statuses = kill_and_ask(endpoint, "ProxyActor")
    assert set(statuses) == {0, 200}
    assert statuses[-1] == 200
