"""Sandbox of untrusted Python code: a process that can compute and nothing else.

Bubblewrap gives it namespaces of its own (no network, no other processes, no users, no shared memory) and a file system that
holds the interpreter, its standard library and the libraries that these load, read-only. It can write nowhere, begin neither
process nor thread, and take no more memory, time and output than it is given. What can be read of the sandbox in its source is
not what is relied on: `open_sandbox` attacks it before it is used.

The kernel is asked through a filter, for what one Python process needs to compute: no process or thread can be begun, no socket
opened, nothing mounted, traced or unshared, no memory taken that is not counted. What is not listed fails with EPERM; system
calls of another architecture end the process.
"""

import contextlib
import errno
import inspect
import math
import os
import re
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from drag_ray.errors import ConfigError, ToolError
from drag_ray.storage.json_text import parse_json
from drag_ray.tools.config import PythonInterpreterConfig
from drag_ray.tools.sandbox import attacks

_LIST_S = 60.0
_LIST_FILES = """
import contextlib, ctypes, json, os, sysconfig

folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), sysconfig.get_config_var("DESTSHARED")]
for name in sorted(entry.partition(".")[0] for entry in os.listdir(folders[2])):
    if not name.startswith(("_test", "_xx", "xx", "_tkinter", "_ctypes_test")):
        with contextlib.suppress(ImportError):
            __import__(name)

class Loaded(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]

names = []

@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Loaded), ctypes.c_size_t, ctypes.c_void_p)
def note(loaded, size, data):
    names.append(os.fsdecode(loaded.contents.name or b""))
    return 0

ctypes.CDLL(None).dl_iterate_phdr(note, None)
print(json.dumps([folders, [name for name in names if os.path.isabs(name) and os.path.exists(name)]]))
"""
"""Loads each compiled module of the standard library, and prints the folders of that library and the shared libraries that are
loaded then (`dl_iterate_phdr`)."""


@dataclass(frozen=True)
class InterpreterFiles:
    """An interpreter's program, without links, the files and folders that it needs, at the paths where it looks for them, and
    folders within these that it does not."""

    python: str
    shown: tuple[str, ...]
    hidden: tuple[str, ...]


@cache
def find_interpreter() -> InterpreterFiles:
    """The interpreter that runs this, without the packages that are installed for it. Raises ConfigError where it does not say
    what it needs."""
    python = str(Path(getattr(sys, "_base_executable", "") or sys.executable).resolve())
    try:
        listed = subprocess.run([python, "-I", "-S", "-c", _LIST_FILES], capture_output=True, timeout=_LIST_S, check=True, env={})
        folders, libraries = parse_json(listed.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise ConfigError(f"{python}: what this Python needs of the disk cannot be found ({error}).") from None
    shown: list[str] = [python]
    for path in (*folders, *libraries):
        if not path.startswith(tuple(f"{parent}/" for parent in shown)) and path not in shown:
            shown.append(path)
    packages = [f"{folder}/{name}" for folder in folders for name in ("site-packages", "dist-packages")]
    return InterpreterFiles(python, tuple(shown), tuple(path for path in dict.fromkeys(packages) if Path(path).is_dir()))


_ALLOWED_CALLS = re.findall(
    r"\w+",
    """
    read pread64 readv preadv write writev lseek open openat close close_range fcntl dup dup2 dup3 pipe pipe2
    stat fstat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat getdents64 getcwd
    poll ppoll select pselect6
    mmap munmap mprotect mremap madvise brk
    rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack alarm setitimer getitimer restart_syscall tgkill
    arch_prctl set_tid_address set_robust_list get_robust_list rseq futex sched_yield sched_getaffinity
    getpid gettid getuid geteuid getgid getegid getresuid getresgid
    getrandom clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times getrusage getrlimit setrlimit
    uname execve wait4 exit exit_group
""",
)
_TERMINAL_REQUESTS = (termios.TCGETS, termios.FIOCLEX, termios.FIONCLEX, termios.FIONBIO, termios.TIOCGWINSZ)
"""Of ioctl: whether something is a terminal, and flags of descriptors. Nothing that puts letters into one."""


def write_filter() -> int:
    """The filter as a file in memory, in the form that the kernel takes; the caller closes it. Raises ConfigError where
    libseccomp is not installed."""
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError, TypeError, AttributeError) as error:  # as it says that there is no library
        raise ConfigError(f"libseccomp cannot be loaded ({error}). Install it (Debian: libseccomp2).") from None

    rules = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.EPERM))
    # The C library falls back to clone, which is refused, where clone3 is unknown.
    rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    for name in _ALLOWED_CALLS:
        if pyseccomp.resolve_syscall(pyseccomp.system_arch(), name) >= 0:  # some are those of one architecture
            rules.add_rule(pyseccomp.ALLOW, name)
    for request in _TERMINAL_REQUESTS:
        rules.add_rule(pyseccomp.ALLOW, "ioctl", pyseccomp.Arg(1, pyseccomp.MASKED_EQ, 0xFFFFFFFF, request))
    rules.add_rule(pyseccomp.ALLOW, "prlimit64", pyseccomp.Arg(0, pyseccomp.EQ, 0))  # of oneself
    descriptor = os.memfd_create("syscalls")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        rules.export_bpf(file)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


MAX_OUTPUT_BYTES = 1_000_000
"""of stdout, and of stderr; who writes more is ended."""
MAX_CODE_CHARS = 100_000
_CODE = "/code.py"
NUM_PARALLEL = 4
"""calls that run at once in a process; further ones wait, within their agent.tool_timeout_s"""
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
    """The outcome of code: its exit status, above 128 where a signal ended it and None where it went beyond a limit, that limit
    (`problem`), and what it wrote; bytes that are no UTF-8 are replaced."""

    status: int | None
    problem: str
    stdout: str
    stderr: str


class Sandbox:
    """Runs code within limits, any number of calls at once, of which `NUM_PARALLEL` run. Raises ConfigError where bubblewrap is
    not there, or the filter cannot be written."""

    def __init__(self, config: PythonInterpreterConfig) -> None:
        program = shutil.which("bwrap")
        if program is None:
            raise ConfigError("bubblewrap is not installed (no program bwrap). Install it (Debian: bubblewrap).")
        self._program = program
        self._config = config
        self._free = threading.BoundedSemaphore(NUM_PARALLEL)
        os.close(write_filter())

    def run(self, code: str) -> Ending:
        """Run code to its end, or until it goes beyond a limit. Nothing of it is left afterwards. Raises ToolError where it is
        too long, or the sandbox cannot be started."""
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
        return Ending(None if problem else status, problem, stdout, stderr)

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
    """Output of a process, so far as it is kept."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout
        assert process.stderr
        self._streams = (process.stdout, process.stderr)
        self._written = {stream.fileno(): bytearray() for stream in self._streams}

    def read(self, timeout_s: float) -> str:
        """Read until both ends are closed; returns any problem."""
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


_PROBE_S = 60.0


@cache
def open_sandbox(config: PythonInterpreterConfig) -> Sandbox:
    """The one sandbox of this process with these limits, which has been attacked in vain. Raises ConfigError where there is none
    that protects; says what is missing."""
    # The attacks must not be taken for hindered because their time was short.
    reached = attack(Sandbox(config.model_copy(update={"timeout_s": max(config.timeout_s, _PROBE_S)})), config.memory_mib)
    if reached:
        raise ConfigError(f"the sandbox does not protect this machine: code in it reaches {', '.join(reached)}.")
    return Sandbox(config)


def attack(sandbox: Sandbox, memory_mib: int) -> list[str]:
    """List what code in the sandbox wrongly reaches. Raises ConfigError where no code can be run in it."""
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
