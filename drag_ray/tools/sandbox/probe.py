"""Test of a sandbox's protection: it is attacked before it is used."""

import inspect
import os
import socket
import tempfile
from functools import cache
from pathlib import Path

from drag_ray.errors import ConfigError, ToolError
from drag_ray.storage.json_text import parse_json
from drag_ray.tools.config import PythonInterpreterConfig
from drag_ray.tools.sandbox import Sandbox, attacks

_PROBE_S = 60.0


def open_sandbox(config: PythonInterpreterConfig) -> Sandbox:
    """The one sandbox of this process with these limits, which has been attacked in vain.

    Raises:
        ConfigError: there is none that protects; says what is missing.
    """
    return _open(config.model_dump_json())


@cache
def _open(options: str) -> Sandbox:
    config = PythonInterpreterConfig.model_validate_json(options)
    # The attacks must not be taken for hindered because their time was short.
    reached = attack(Sandbox(config.model_copy(update={"timeout_s": max(config.timeout_s, _PROBE_S)})), config.memory_mib)
    if reached:
        raise ConfigError(f"the sandbox does not protect this machine: code in it reaches {', '.join(reached)}.")
    return Sandbox(config)


def attack(sandbox: Sandbox, memory_mib: int) -> list[str]:
    """List what code in the sandbox wrongly reaches.

    Raises:
        ConfigError: no code can be run in it.
    """
    with tempfile.TemporaryDirectory() as folder, socket.socket() as listener, socket.socket(socket.AF_UNIX) as local:
        Path(folder).chmod(0o777)
        file = Path(folder, "outside")
        file.write_text("outside")
        file.chmod(0o666)
        listener.bind(("127.0.0.1", 0))
        name = f"drag_ray-{os.getpid()}-{listener.getsockname()[1]}"
        local.bind(f"\0{name}")
        listener.listen()
        local.listen()
        facts = {
            "port": listener.getsockname()[1],
            "name": name,
            "file": str(file),
            "folder": folder,
            "memory": memory_mib * 2**20,
        }
        try:
            ending = sandbox.run(f"{inspect.getsource(attacks)}\n\nmain({facts!r})\n")
        except ToolError as error:
            raise ConfigError(f"{error}.") from None
    try:
        if ending.status == 0:
            return parse_json(ending.stdout)
    except ValueError:
        pass
    said = (ending.problem or ending.stderr.strip() or f"status {ending.status}")[-500:]
    raise ConfigError(
        f"bubblewrap runs nothing here: {said}. It needs user namespaces: a container has to allow them (Docker: "
        "--security-opt seccomp=unconfined --security-opt apparmor=unconfined), and so has AppArmor (sysctl "
        "kernel.apparmor_restrict_unprivileged_userns=0, or a profile for bwrap)."
    )
