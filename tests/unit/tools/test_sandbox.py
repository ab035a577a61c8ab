"""Code in the sandbox attacks what is outside of it, and what it is given."""

import platform
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from sandboxes import needs_sandbox

from drag_ray.errors import ConfigError, ToolError
from drag_ray.tools import sandbox as module
from drag_ray.tools.config import PythonInterpreterConfig
from drag_ray.tools.sandbox import MAX_CODE_CHARS, MAX_OUTPUT_BYTES, Sandbox, attack, attacks, open_sandbox

pytestmark = needs_sandbox
CONFIG = PythonInterpreterConfig(timeout_s=20, memory_mib=128)
HASTY = PythonInterpreterConfig(timeout_s=1, memory_mib=128)
TRY = """
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)

def check(result):
    if result == -1:
        raise OSError(ctypes.get_errno())

def attempt(**attacks):
    for name, attack in attacks.items():
        try:
            print("reached", name, attack())
        except (OSError, RuntimeError, MemoryError, ValueError):
            print("refused")
"""


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return open_sandbox(CONFIG)  # pyright: ignore[reportArgumentType] (it is frozen, and so has a hash)


@pytest.fixture(scope="module")
def hasty_sandbox(sandbox: Sandbox) -> Sandbox:
    return Sandbox(HASTY)


def test_code_computes_with_the_standard_library_unless_it_is_too_long(sandbox: Sandbox) -> None:
    ending = sandbox.run("import decimal, hashlib, json, sqlite3, statistics\nprint(statistics.mean([1, 2, 6]), 'ü')")
    assert (ending.status, ending.problem, ending.stdout, ending.stderr) == (0, "", "3 ü\n", "")
    with pytest.raises(ToolError, match="at most 100,000 are run"):
        sandbox.run("#" * (MAX_CODE_CHARS + 1))


@pytest.mark.parametrize(
    "attacks",
    [
        "passwd=lambda: open('/etc/passwd'), environ=lambda: open('/proc/1/environ'), self=lambda: open('/proc/self/maps'), "
        "keys=lambda: os.listdir('/root/.ssh'), up=lambda: open('/dev/../../etc/passwd'), home=lambda: os.listdir('/home')",
        "root=lambda: open('/x', 'w'), tmp=lambda: open('/tmp/x', 'w'), dev=lambda: open('/dev/x', 'w'), "
        "code=lambda: open('/code.py', 'a'), library=lambda: open(os.__file__, 'a'), folder=lambda: os.mkdir('/d'), "
        "beside=lambda: open(os.path.dirname(os.__file__) + '/x.py', 'w'), python=lambda: open(sys.executable, 'r+b')",
        "link=lambda: os.symlink('/etc/passwd', '/x'), hard=lambda: os.link('/code.py', '/x'), no=lambda: os.unlink('/code.py'), "
        "moved=lambda: os.rename('/code.py', '/y'), mode=lambda: os.chmod('/dev', 0o777), owner=lambda: os.chown('/dev', 0, 0), "
        "device=lambda: os.mknod('/x', 0o60600, 0), root=lambda: os.chroot('/dev'), fifo=lambda: os.mkfifo('/x')",
        "tcp=lambda: socket.create_connection(('127.0.0.1', 22), 1), udp=lambda: socket.socket(type=socket.SOCK_DGRAM), "
        "unix=lambda: socket.socket(socket.AF_UNIX), raw=lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW), "
        "netlink=lambda: socket.socket(socket.AF_NETLINK), pair=lambda: socket.socketpair(), icmp=lambda: "
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1), name=lambda: socket.getaddrinfo('example.org', 80)",
        "trace=lambda: check(libc.ptrace(16, 1, None, None)), mount=lambda: check(libc.mount(b'none', b'/', b'tmpfs', 0, None)), "
        "unshare=lambda: check(libc.unshare(0x10000000)), setns=lambda: check(libc.setns(0, 0)), "
        "kill=lambda: os.kill(1, 9), priority=lambda: os.nice(-5), user=lambda: os.setuid(0), "
        "limit=lambda: __import__('resource').prlimit(1, 7, (1, 1)), shm=lambda: check(libc.shmget(0, 4096, 0o1600)), "
        "memfd=lambda: os.memfd_create('x'), host=lambda: socket.sethostname('x'), umount=lambda: check(libc.umount2(b'/', 2))",
        "letters=lambda: __import__('fcntl').ioctl(0, 0x5412, b'x'), high=lambda: check(libc.ioctl(0, 0x100005412, b'x')), "
        "tty=lambda: open('/dev/tty'), ptmx=lambda: os.openpty(), console=lambda: open('/dev/console')",
        "fork=os.fork, daemon=lambda: os.fork() or os.setsid(), spawn=lambda: os.posix_spawn(sys.executable, ['python'], {}), "
        "run=lambda: __import__('subprocess').run([sys.executable, '-c', '']), shell=lambda: check(-(os.system('true') != 0)), "
        "thread=lambda: __import__('threading').Thread(target=print).start()",
        "memory=lambda: bytearray(200 << 20), shared=lambda: __import__('mmap').mmap(-1, 200 << 20), "
        "more=lambda: __import__('resource').setrlimit(9, (-1, -1)), files=lambda: [os.open('/dev/null', 0) for _ in range(99)]",
    ],
    ids=["read", "write", "links", "sockets", "kernel", "terminals", "processes", "memory"],
)
def test_nothing_is_reached(sandbox: Sandbox, attacks: str) -> None:
    ending = sandbox.run(f"{TRY}\nattempt({attacks})")
    assert (ending.status, ending.stderr) == (0, "")
    assert set(ending.stdout.splitlines()) == {"refused"}


def test_there_is_nothing_to_be_found(sandbox: Sandbox) -> None:
    code = "import os, sys\nprint(sorted(os.listdir('/dev')), dict(os.environ), os.getpid(), sys.argv, sys.flags.isolated)\n"
    code += "print([n for n in range(3, 999) if os.path.exists(f'/proc/self/fd/{n}')], sys.stdin.read(), os.getuid())\n"
    ending = sandbox.run(code + "import pip")
    shown = "['null', 'urandom', 'zero'] {'PWD': '/', 'LC_CTYPE': 'C.UTF-8'} 2 ['/code.py'] 1\n[]  65534\n"
    assert ending.stdout.replace(", 'LC_CTYPE': 'C.UTF-8'", "") == shown.replace(", 'LC_CTYPE': 'C.UTF-8'", "")
    assert "No module named 'pip'" in ending.stderr


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code and numbers of system calls of x86-64")
@pytest.mark.parametrize(
    ("call", "status"),
    [
        ("[libc.syscall(number, 0, 0, 0) for number in (41, 53, 56, 57, 101, 165, 272, 298, 310, 319, 321, 323, 425, 435)]", 0),
        ("libc.syscall(0x40000000 + 39)", 159),  # getpid of the x32 interface
        ("run(b'\\xb8\\x67\\x01\\x00\\x00\\xcd\\x80\\xc3')", 159),  # socket of 32-bit Linux: mov eax, 359; int 0x80; ret
    ],
)
def test_the_kernel_answers_no_other_way_either(sandbox: Sandbox, call: str, status: int) -> None:
    run = """
import mmap
def run(instructions):
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(instructions)
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
"""
    ending = sandbox.run(f"{TRY}{run}\nresult = {call}\nprint(result)")
    assert ending.status == status
    if not status:
        assert set(ending.stdout.strip("[]\n").split(", ")) == {"-1"}


@pytest.mark.seconds
@pytest.mark.parametrize(
    "code",
    [
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except Exception: pass\n"
        "while True: pass",
        "10 ** 10 ** 9",
        "import os, time; os.close(1); os.close(2); time.sleep(99)",
        "print('before', flush=True)\nwhile True: pass",
        "import re; re.match(r'(a+)+$', 'a' * 64 + 'b')",
    ],
)
def test_what_does_not_end_is_ended(hasty_sandbox: Sandbox, code: str) -> None:
    started = time.monotonic()
    ending = hasty_sandbox.run(code)
    assert (ending.status, ending.problem) == (None, "it did not end within 1 s")
    assert time.monotonic() - started < 5
    assert ending.stdout == ("before\n" if "before" in code else "")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_endless_output_is_ended(sandbox: Sandbox, stream: str) -> None:
    ending = sandbox.run(f"import sys\nwhile True: sys.{stream}.write('x' * 9999)")
    assert ending.problem == f"it wrote more than {MAX_OUTPUT_BYTES:,} bytes"
    assert len(ending.stdout) + len(ending.stderr) == MAX_OUTPUT_BYTES


@pytest.mark.parametrize(
    "code",
    [
        "kept = []\nwhile True: kept.append(bytearray(1 << 20))",
        "text = 'x'\nwhile True: text += text",
        "open('/dev/zero', 'rb').read()",
    ],
)
def test_memory_ends_the_program_alone(sandbox: Sandbox, code: str) -> None:
    ending = sandbox.run(code)
    assert ending.problem == ""
    assert "MemoryError" in ending.stderr


@pytest.mark.seconds
def test_a_program_that_is_ended_leaves_no_process(sandbox: Sandbox) -> None:
    del sandbox  # it has been attacked
    # Of all processes here it is told by its limit of memory.
    config = PythonInterpreterConfig(timeout_s=60, memory_mib=131)
    running = threading.Thread(target=Sandbox(config).run, args=("while True: pass",))
    running.start()
    seen: list[psutil.Process] = []
    while running.is_alive() and len(seen) < 3:  # two of bubblewrap, and Python
        for process in psutil.Process().children():
            if str(131 * 2**20) in process.cmdline():
                seen = [process, *process.children(recursive=True)]
    seen[0].kill()  # as a call does that is over its time
    psutil.wait_procs(seen, timeout=10)
    assert not [process for process in seen if process.is_running()]
    running.join()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("print('\\0', end='')", "\0"),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\xfe')", "\ufffd\ufffd"),
        ("print('\\ud800'.encode('utf-8', 'surrogatepass'))", "b'\\xed\\xa0\\x80'\n"),
        ("print('\ud800')", "?\n"),
    ],
)
def test_what_it_writes_is_text_whatever_it_is(sandbox: Sandbox, code: str, told: str) -> None:
    assert sandbox.run(code).stdout == told


@pytest.mark.parametrize(
    ("code", "problem"),
    [("1 / 0", "ZeroDivisionError: division by zero"), ("(", "SyntaxError: '(' was never closed"), ("a\0", "null bytes")],
)
def test_what_went_wrong_is_told_with_its_place(sandbox: Sandbox, code: str, problem: str) -> None:
    ending = sandbox.run(code)
    assert ending.status == 1
    assert problem in ending.stderr
    assert "/code.py" in ending.stderr or "null" in problem


@pytest.mark.seconds
def test_no_more_run_at_once_than_may(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    del sandbox
    monkeypatch.setattr(module, "NUM_PARALLEL", 1)
    one = Sandbox(PythonInterpreterConfig(memory_mib=128))
    spans: list[str] = []
    code = "import time\nprint(time.monotonic()); time.sleep(.2); print(time.monotonic())"
    threads = [threading.Thread(target=lambda: spans.append(one.run(code).stdout)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times = [float(moment) for span in sorted(spans, key=lambda span: float(span.split()[0])) for moment in span.split()]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("weaken", "reached"),
    [
        (lambda command, _: _without(command, "--seccomp", 2), {"another process", "a thread", "the kernel's shmget"}),
        (lambda command, _: [*command[:1], "--share-net", *_without(command, "--seccomp", 2)[1:]], {"another process"}),
        (lambda command, folder: [*command[:-20], *command[-20:]], set()),
        (lambda command, folder: _insert(command, "--bind", folder, folder), {"a file", "a folder"}),
        (lambda command, folder: _insert(command, "--proc", "/proc"), {"processes"}),
        (lambda command, folder: _insert(command, "--setenv", "API_KEY", "x"), {"the variable API_KEY"}),
        (lambda command, folder: _without(command, "--remount-ro", 2), {"writing to /"}),
    ],
    ids=["no filter", "network", "whole", "a folder", "proc", "variable", "writable"],
)
def test_a_sandbox_with_a_hole_is_found_out(monkeypatch: pytest.MonkeyPatch, tmp_path, weaken, reached: set[str]) -> None:
    build = Sandbox._build_command
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(Sandbox, "_build_command", lambda *args: weaken(build(*args), str(tmp_path)))
    found = set(attack(Sandbox(CONFIG), CONFIG.memory_mib))
    assert found >= reached
    assert bool(found) == bool(reached)
    if reached:
        with pytest.raises(ConfigError, match="does not protect this machine: code in it reaches"):
            open_sandbox(CONFIG.model_copy(update={"timeout_s": 21}))  # pyright: ignore[reportArgumentType] (it is frozen)


def _without(command: list[str], option: str, num_words: int) -> list[str]:
    """A command without an option, wherever it stands."""
    while option in command:
        place = command.index(option)
        command = command[:place] + command[place + num_words :]
    return command


def _insert(command: list[str], *words: str) -> list[str]:
    place = len(command) - 1 - command[::-1].index("--remount-ro")
    return [*command[:place], *words, *command[place:]]


def test_the_attacks_succeed_where_nothing_hinders_them(tmp_path) -> None:
    (tmp_path / "outside").write_text("outside")
    facts = {"port": 1, "name": "none", "file": str(tmp_path / "outside"), "folder": str(tmp_path), "memory": 1000}
    code = f"import attacks\nattacks.main({facts!r})"
    folder = Path(attacks.__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env={"A_KEY": "x"}, capture_output=True, text=True, check=True
    )
    for name in (
        "a file",
        "a folder",
        "another process",
        "a thread",
        "memory beyond",
        f"writing to {tmp_path}",
        "variable A_KEY",
    ):
        assert name in done.stdout
    assert "the kernel's unshare" in done.stdout
