"""Processes of Ray Serve are killed under an endpoint that is asked all the while, its disk is full, and its driver is killed."""

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from endpoint_process import Endpoint, serve_run

ASKED = {"model": "base", "messages": [{"role": "user", "content": "Count."}], "max_tokens": 2}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def disk() -> Iterator[Path]:
    """A file system of 64 MiB for all that is written: Ray's sockets lie there too, whose paths must be short."""
    mount = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    is_mounted = not subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(mount)]).returncode
    yield mount
    if is_mounted:
        subprocess.run(["umount", "-l", str(mount)], check=True)
    shutil.rmtree(mount, ignore_errors=True)


@pytest.fixture(scope="module")
def endpoint(disk: Path) -> Iterator[Endpoint]:
    options = {"run-dir": disk / "run", "cluster.num-cpus": 2, "engine.max-model-len": 512, "engine.max-num-seqs": 4}
    with serve_run(options, RAY_TMPDIR=str(disk)) as endpoint:
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


def kill_and_ask(endpoint: Endpoint, name: str) -> dict[float, int]:
    """The status of one request after the other by the seconds since a process was killed, until another one has its place for a
    while.
    """
    assert ask(endpoint) == 200
    killed = find_process(endpoint, name)
    assert killed, f"no process {name}"
    killed.kill()
    statuses, killed_at, come_at = dict[float, int](), time.monotonic(), 0.0
    while not come_at or time.monotonic() < come_at + 10:
        assert time.monotonic() < killed_at + 200, "none takes its place"
        status = ask(endpoint)
        statuses[time.monotonic() - killed_at] = status
        time.sleep(0.1)
        found = find_process(endpoint, name)
        if found and found != killed and not come_at:
            come_at = time.monotonic()
    return statuses


def test_requests_are_answered_while_the_controller_is_away(endpoint: Endpoint) -> None:
    assert set(kill_and_ask(endpoint, "ServeController").values()) == {200}


def test_a_proxy_that_is_killed_comes_again_and_nobody_is_told_anything_wrong(
    endpoint: Endpoint, record_property: Callable[[str, object], None]
) -> None:
    statuses = kill_and_ask(endpoint, "ProxyActor")
    assert set(statuses.values()) == {0, 200}
    silent_until = max(at for at, status in statuses.items() if status == 0)
    assert silent_until < max(statuses)
    record_property("recovered_s", min(at for at in statuses if at > silent_until))


def test_requests_are_answered_while_the_disk_of_its_run_and_logs_is_full(endpoint: Endpoint, disk: Path) -> None:
    if not disk.is_mount():
        pytest.skip("no file system of its own for this test")
    assert ask(endpoint) == 200
    with (disk / "filler").open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while stream.write(bytes(4096)):
            pass
    assert shutil.disk_usage(disk).free == 0
    statuses, until = list[int](), time.monotonic() + 30
    while time.monotonic() < until:
        statuses.append(ask(endpoint))
    assert set(statuses) == {200}
    (disk / "filler").unlink()
    assert ask(endpoint) == 200


def test_an_endpoint_on_a_local_ray_goes_with_its_driver_and_leaves_no_process(endpoint: Endpoint) -> None:
    assert ask(endpoint) == 200
    processes = endpoint.driver.children(recursive=True)
    endpoint.driver.kill()
    _, alive = psutil.wait_procs(processes, timeout=120)
    assert not alive
    assert ask(endpoint) == 0
