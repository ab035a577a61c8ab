"""Ctrl-C ends a command within seconds, whatever it waits for, and leaves none of its processes behind.

A main thread that waits in native code, for a thread or for Ray may not see KeyboardInterrupt for minutes, or never. What is
finished is kept after a kill too, so a command that does not end by itself is ended.
"""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

INTERRUPTED = 130
"""exit status, as shells give it to what SIGINT has ended"""
_GRACE_S = 5.0
"""for what a command has to close: its Ray, its engines, its ledger"""
_TELL_S = 2.0
"""at most, until the message is written"""


@contextlib.contextmanager
def ending_on_interrupt(message: str) -> Generator[None]:
    """Have the first Ctrl-C end what runs in the block.

    The message goes to standard error, whatever libraries say of their own end is dropped, and KeyboardInterrupt is raised in the
    main thread. The process, and all that it has started, is killed if it has not ended after `_GRACE_S`, or at the next Ctrl-C.
    In another thread, and where SIGINT is ignored or handled already, nothing is changed.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    interruption = _Interruption(message)
    try:
        yield
    finally:
        interruption.close()


def let_waits_end() -> None:
    """Have Ctrl-C end what the main thread waits for.

    Polars, once it is imported, handles SIGINT before Python does, and has the system take such waits up again (SA_RESTART).
    """
    signal.siginterrupt(signal.SIGINT, True)


def wait_for_a_signal() -> None:
    """Return on Ctrl-C, or when the job is asked to end."""
    wanted = threading.Event()
    # Who ends the process on Ctrl-C (`ending_on_interrupt`) must not take this one for its own when the handlers are put back.
    wakeup_fd = signal.set_wakeup_fd(-1)
    handlers = {number: signal.signal(number, lambda *_: wanted.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        wanted.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup_fd, warn_on_full_buffer=False)


class _Interruption:
    """Handles SIGINT until it is closed; a thread sees it where the main thread does not."""

    def __init__(self, message: str) -> None:
        self._message = message
        self._is_interrupted = False
        self._is_told = threading.Event()
        self._started: dict[int, str] = {}
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._earlier_fd = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, self._interrupt)
        threading.Thread(target=self._watch, name="interruption", daemon=True).start()

    def close(self) -> None:
        """Put things back; after an interruption end the processes that are left, and raise KeyboardInterrupt."""
        if self._is_interrupted:  # the thread goes on: what is left to end are the interpreter's own threads
            self._kill_started()
            raise KeyboardInterrupt
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(self._earlier_fd)
        os.close(self._write_end)

    def _interrupt(self, *_: object) -> None:
        if not self._is_interrupted:
            self._is_interrupted = True
            self._is_told.wait(_TELL_S)
            raise KeyboardInterrupt

    def _watch(self) -> None:
        if self._wait_for_a_signal():
            self._started = _list_descendants()  # before some of them lose the parent by which they are found
            os.write(2, f"{self._message}\n".encode())
            _drop_output()
            self._is_told.set()
            let_waits_end()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            self._wait_for_a_signal()  # that one
            self._wait_for_a_signal(_GRACE_S)
            self._kill_started()
            os._exit(INTERRUPTED)
        os.close(self._read_end)

    def _wait_for_a_signal(self, timeout_s: float | None = None) -> bool:
        """True if SIGINT has come that is handled here; False after the time, and when the other end is closed."""
        while select.select([self._read_end], [], [], timeout_s)[0]:
            numbers = os.read(self._read_end, 1)
            if not numbers:
                return False
            # Serving ends by a handler of its own.
            if numbers[0] == signal.SIGINT and signal.getsignal(signal.SIGINT) == self._interrupt:
                return True
        return False

    def _kill_started(self) -> None:
        born = {pid: process.born for pid, process in _list_processes().items()}
        for pid, then in (self._started | _list_descendants()).items():
            if born.get(pid) == then:  # no other one has its number since
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


class _Process(NamedTuple):
    parent: int
    born: str


def _list_processes() -> dict[int, _Process]:
    """All processes of the machine by their numbers, with their parents and the tick in which they began."""
    processes: dict[int, _Process] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            values = path.read_text(errors="replace").rpartition(")")[2].split()
            processes[int(path.parent.name)] = _Process(int(values[1]), values[19])
    return processes


def _list_descendants() -> dict[int, str]:
    """The processes that this one has started, and those that they have, with the ticks in which they began."""
    processes = _list_processes()
    own = {os.getpid()}
    while more := {pid for pid, process in processes.items() if process.parent in own} - own:
        own |= more
    return {pid: processes[pid].born for pid in own - {os.getpid()} if pid in processes}


def _drop_output() -> None:
    """Of a Ray that ends, of actors that are killed and would start again, and of all else that is no news now."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
