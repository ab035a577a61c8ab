"""Nodes of a Ray cluster in network namespaces of this machine, which can be lost, or cut off from the others and go on."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from ports import find_port

_RAY = Path(sys.executable).with_name("ray")
_ENVIRONMENT = {
    "RAY_AUTH_MODE": "token",
    # The head asks a node each second whether it lives, and gives it up after the third answer that has not come within 3 s;
    **{"RAY_health_check_period_ms": "1000", "RAY_health_check_timeout_ms": "3000", "RAY_health_check_failure_threshold": "3"},
    # a process notices after 15 s that another one is gone to which it has a connection, and not after 7 minutes.
    **{"RAY_grpc_client_keepalive_time_ms": "10000", "RAY_grpc_client_keepalive_timeout_ms": "5000"},
}


@dataclass(frozen=True)
class NetworkNode:
    """A node that works, all of whose processes descend from one."""

    process: psutil.Process
    link: str

    def has_worker(self, name: str) -> bool:
        """Tell whether there is a process of such a name."""
        return any(name in " ".join(process.cmdline()) for process in self.process.children(recursive=True))

    def lose(self) -> None:
        """Kill all processes."""
        kill_family(self.process)

    def cut_off(self) -> None:
        """Let nothing through to it, nor from it."""
        _run_ip(f"link set {self.link} down")


@dataclass(frozen=True)
class Network:
    """A head, where drivers are, and nodes.

    Attributes:
        host: address of this machine as the nodes see it.
        address: of the cluster.
        environment: what drivers have beside the variables of this process.
    """

    host: str
    address: str
    environment: dict[str, str]
    nodes: tuple[NetworkNode, ...]


def has_namespaces() -> bool:
    """Tell whether this process may make network namespaces."""
    name = f"dr{os.getpid()}"
    if os.geteuid() or not shutil.which("ip") or subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return False
    _run_ip(f"netns del {name}")
    return True


@contextlib.contextmanager
def start_network(num_nodes: int) -> Iterator[Network]:
    """A head without CPUs, and nodes with one each that share a disk with it."""
    name, subnet = f"dr{os.getpid()}", f"10.77.{os.getpid() % 250}"
    # Their names stand for addresses that no other node reaches, and Gloo would tell those.
    environment = {**os.environ, **_ENVIRONMENT, "GLOO_SOCKET_IFNAME": "eth0"}
    with contextlib.ExitStack() as stack:
        _run_ip(f"link add {name} type bridge", f"addr add {subnet}.1/24 dev {name}", f"link set {name} up")
        stack.callback(_run_ip, f"link del {name}")
        own = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True))  # short: for sockets
        port = find_port()
        head = [
            "--head",
            f"--port={port}",
            f"--ray-client-server-port={find_port()}",
            "--num-cpus=0",
            "--include-dashboard=false",
        ]

        def start(prefix: list[str], address: str, *options: str) -> psutil.Process:
            command = [*prefix, str(_RAY), "start", "--block", f"--node-ip-address={address}", f"--temp-dir={own}/{address}"]
            process = subprocess.Popen([*command, *options], env=environment, stdout=subprocess.DEVNULL)
            found = psutil.Process(process.pid)
            stack.callback(process.wait)
            stack.callback(kill_family, found)
            return found

        started = start([], f"{subnet}.1", *head)
        address = f"{subnet}.1:{port}"
        _wait_for(address, started)
        nodes: list[NetworkNode] = []
        for number in range(2, num_nodes + 2):
            place, link = f"{name}n{number}", f"{name}v{number}"
            _run_ip(f"netns add {place}")
            stack.callback(_run_ip, f"netns del {place}")
            _run_ip(f"link add {link} type veth peer name eth0 netns {place}")
            stack.callback(_run_ip, f"link del {link}")  # before its namespace, which goes with its last process
            _run_ip(
                f"link set {link} master {name} up",
                f"-n {place} addr add {subnet}.{number}/24 dev eth0",
                *(f"-n {place} link set {device} up" for device in ("eth0", "lo")),
            )
            within = ["ip", "netns", "exec", place]
            nodes.append(NetworkNode(start(within, f"{subnet}.{number}", f"--address={address}", "--num-cpus=1"), link))
        yield Network(f"{subnet}.1", address, _ENVIRONMENT, tuple(nodes))


def kill_family(process: psutil.Process) -> None:
    """A process and all that it has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for member in (*process.children(recursive=True), process):
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()


def _run_ip(*commands: str) -> None:
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)


def _wait_for(address: str, process: psutil.Process) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + 120
    while True:
        with socket.socket() as asking:
            if asking.connect_ex((host, int(port))) == 0:
                return
        assert process.is_running(), "ray start has ended"
        assert time.monotonic() < deadline, "the head does not listen"
        time.sleep(0.1)
