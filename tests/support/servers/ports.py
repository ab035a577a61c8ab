"""The ports of a run: which there are, and how they answer a call from outside of Ray, with a token or without."""

import contextlib
import socket
from typing import NamedTuple

import grpc
import psutil


class Port(NamedTuple):
    """A TCP port on which a process listens."""

    process: psutil.Process
    address: str
    number: int


def list_ports(driver: psutil.Process) -> list[Port]:
    """The ports on which a driver and everything that it started listen at this moment."""
    ports = []
    for process in (driver, *driver.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it may have ended meanwhile
            found = [one for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
            ports += [Port(process, one.laddr.ip.removeprefix("::ffff:"), one.laddr.port) for one in found]
    return ports


def find_port() -> int:
    """One at which nobody listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def ask_grpc(port: int, method: str, token: str = "") -> grpc.StatusCode:
    """The status of an empty call of a method (`package.Service/Method`) on the loopback address; OK if it was answered."""
    metadata = (("authorization", f"Bearer {token}"),) if token else None
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            channel.unary_unary(f"/{method}")(b"", timeout=10, metadata=metadata)
        except grpc.RpcError as error:
            return error.code()  # pyright: ignore[reportAttributeAccessIssue]
    return grpc.StatusCode.OK
