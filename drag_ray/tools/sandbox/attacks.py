"""Attacks on what code in the sandbox must not reach. This file is run there as it stands, without any package.

Where an attack succeeds it leaves nothing behind and harms nothing: the sandbox may be none.
"""

import ctypes
import errno
import json
import os
import resource
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_NOBODY = 0x7FFFFFFF
_ATTACH = 16
_KERNEL_CALLS: dict[str, tuple[Any, ...]] = {
    "mount": (b"none", b"/", b"drag_ray-no-file-system", 0, None),
    "unshare": (0,),
    "setns": (-1, 0),
    "ptrace": (_ATTACH, _NOBODY, None, None),
    "process_vm_readv": (_NOBODY, None, 0, None, 0, 0),
    "shmget": (_NOBODY, 0, 0),
    "msgget": (_NOBODY, 0),
    "inotify_init": (),
    "personality": (0xFFFFFFFF,),
}
"""Calls that do nothing, whoever makes them. The filter does not permit them; without it they succeed, or fail otherwise."""


def list_reached(facts: dict[str, Any]) -> list[str]:
    """Names of what was wrongly reached; each attack that raises has failed. `facts`: `port` and `name` of sockets that listen
    outside (TCP on the loopback address, and abstract), `file` and `folder` that anybody may read and write outside, `memory` in
    bytes."""
    attacks: dict[str, Callable[[], Any]] = {
        "the network": lambda: socket.create_connection(("127.0.0.1", facts["port"]), 1),
        "a socket of this machine": lambda: socket.socket(socket.AF_UNIX).connect(f"\0{facts['name']}"),
        "a file": lambda: Path(facts["file"]).read_text(),
        "a folder": lambda: list(Path(facts["folder"]).iterdir()),
        "processes": lambda: list(Path("/proc/1").iterdir()),
        "another process": _begin_process,
        "a thread": lambda: threading.Thread(target=int).start(),
        "memory beyond the limit": lambda: bytearray(facts["memory"]),
        "memory of no process": lambda: os.memfd_create("probe"),
        "other limits": lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1)),
    }
    for place in ("/", "/tmp", "/dev", "/dev/shm", "/var/tmp", str(Path(os.__file__).parent), facts["folder"]):
        attacks[f"writing to {place}"] = lambda place=place: tempfile.TemporaryFile(dir=place).close()
    reached = [name for name, attack in attacks.items() if _succeeds(attack)]
    reached += [f"the kernel's {name}" for name, arguments in _KERNEL_CALLS.items() if _is_permitted(name, arguments)]
    reached += [f"the open file {number}" for number in range(3, 1024) if _succeeds(lambda number=number: os.fstat(number))]
    return reached + [f"the variable {name}" for name in sorted(set(os.environ) - {"PWD", "LC_CTYPE"})]


def _begin_process() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _is_permitted(name: str, arguments: tuple[Any, ...]) -> bool:
    ctypes.set_errno(0)
    getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments)
    return ctypes.get_errno() != errno.EPERM


def _succeeds(attack: Callable[[], Any]) -> bool:
    try:
        attack()
    except (OSError, RuntimeError, MemoryError, ValueError):
        return False
    return True


def main(facts: dict[str, Any]) -> None:
    """Print what was reached, as JSON."""
    print(json.dumps(list_reached(facts)))
