"""Python code of a stranger, in a process that can compute and nothing else.

Bubblewrap gives it namespaces of its own (no network, no other processes, no users, no shared memory) and a file system that
holds the interpreter and its standard library, read-only; the kernel is asked through a filter (`tools.syscalls`). It can write
nowhere, begin neither process nor thread, and take no more memory, time and output than it is given. What can be read of the
sandbox in its source is not what is relied on: `tools.sandbox_probe` attacks it before it is used.
"""

import contextlib
import math
import os
import selectors
import shutil
import subprocess
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass

from drag_ray.errors import ConfigError, ToolError
from drag_ray.tools.config import PythonInterpreterConfig
from drag_ray.tools.interpreter_files import find_interpreter
from drag_ray.tools.syscalls import write_filter

MAX_OUTPUT_BYTES = 1_000_000
"""of stdout, and of stderr; who writes more is ended."""
MAX_CODE_CHARS = 100_000
_CODE = "/code.py"
_MAX_FILES = 64
_CHUNK_BYTES = 65_536
_BEGIN = """
import os, resource, sys
python, code, memory, cpu, files = sys.argv[1:]
for limit, most in (
    (resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, cpu), (resource.RLIMIT_NOFILE, files), (resource.RLIMIT_FSIZE, 0),
    (resource.RLIMIT_CORE, 0), (resource.RLIMIT_MEMLOCK, 0), (resource.RLIMIT_MSGQUEUE, 0), (resource.RLIMIT_NPROC, 0),
):
    resource.setrlimit(limit, (int(most), int(most)))
os.execv(python, [python, "-I", "-S", "-B", "-X", "utf8", code])
"""
"""Sets limits that cannot be raised again, and becomes the code."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What became of code.

    Attributes:
        status: its exit status, above 128 where a signal ended it; None where it was ended because it went beyond a limit.
        problem: which limit; empty if none.
        stdout: what it wrote; bytes that are no UTF-8 are replaced.
        stderr: likewise.
    """

    status: int | None
    problem: str
    stdout: str
    stderr: str


class Sandbox:
    """Runs code within limits, any number of calls at once, of which `num_parallel` run.

    Raises:
        ConfigError: bubblewrap is not there, or the filter cannot be written.
    """

    def __init__(self, config: PythonInterpreterConfig) -> None:
        program = shutil.which("bwrap")
        if program is None:
            raise ConfigError("bubblewrap is not installed (no program bwrap). Install it (Debian: bubblewrap).")
        self._program = program
        self._config = config
        self._free = threading.BoundedSemaphore(config.num_parallel)
        os.close(write_filter())

    def run(self, code: str) -> Ending:
        """Run code to its end, or until it goes beyond a limit. Nothing of it is left afterwards.

        Raises:
            ToolError: it is too long, or the sandbox cannot be started.
        """
        if len(code) > MAX_CODE_CHARS:
            raise ToolError(f"the code has {len(code):,} characters, at most {MAX_CODE_CHARS:,} are run")
        with self._free, self._start(code) as process:
            problem = ""
            output = _Output(process)
            try:
                problem = output.read(self._config.timeout_s)
            finally:
                process.kill()  # bubblewrap takes the whole namespace of processes with it
                status = process.wait()
            stdout, stderr = output.decode()
        if problem:
            return Ending(None, problem, stdout, stderr)
        return Ending(status, "", stdout, stderr)

    @contextlib.contextmanager
    def _start(self, code: str) -> Generator["subprocess.Popen[bytes]"]:
        rules, text = write_filter(), os.memfd_create("code")
        try:
            with os.fdopen(os.dup(text), "wb") as file:
                file.write(code.encode("utf-8", "replace"))
            os.lseek(text, 0, os.SEEK_SET)
            process = subprocess.Popen(
                self._build_command(rules, text),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(rules, text),
                env={},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise ToolError(f"the sandbox cannot be started ({error})") from error
        finally:
            os.close(rules)
            os.close(text)
        with process:
            yield process

    def _build_command(self, rules: int, text: int) -> list[str]:
        interpreter = find_interpreter()
        shown = [argument for path in interpreter.shown for argument in ("--ro-bind", path, path)]
        hidden = [argument for path in interpreter.hidden for argument in ("--tmpfs", path, "--remount-ro", path)]
        devices = [argument for path in ("/dev/null", "/dev/zero", "/dev/urandom") for argument in ("--dev-bind", path, path)]
        limits = (self._config.memory_mib * 2**20, math.ceil(self._config.timeout_s) + 1, _MAX_FILES)
        return [
            self._program,
            *("--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"),
            *("--uid", "65534", "--gid", "65534", "--hostname", "sandbox"),
            *(*shown, *hidden, *devices, "--ro-bind-data", str(text), _CODE, "--remount-ro", "/", "--chdir", "/"),
            *("--seccomp", str(rules), "--"),
            *(interpreter.python, "-I", "-S", "-B", "-c", _BEGIN, interpreter.python, _CODE, *map(str, limits)),
        ]


class _Output:
    """What a process writes, so far as it is kept."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout
        assert process.stderr
        self._streams = (process.stdout, process.stderr)
        self._written = {stream.fileno(): bytearray() for stream in self._streams}

    def read(self, timeout_s: float) -> str:
        """Read until both ends are closed; what went wrong before."""
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            for stream in self._streams:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return f"it did not end within {timeout_s:g} s"
                for key, _ in selector.select(left_s):
                    chunk = os.read(key.fd, _CHUNK_BYTES)
                    self._written[key.fd] += chunk
                    if not chunk:
                        selector.unregister(key.fileobj)
                    elif len(self._written[key.fd]) > MAX_OUTPUT_BYTES:
                        return f"it wrote more than {MAX_OUTPUT_BYTES:,} bytes"
        return ""

    def decode(self) -> tuple[str, str]:
        """Stdout and stderr."""
        stdout, stderr = (bytes(written[:MAX_OUTPUT_BYTES]).decode(errors="replace") for written in self._written.values())
        return stdout, stderr
