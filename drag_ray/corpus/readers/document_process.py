"""A process that reads documents, one after another, within limits.

A file of a kilobyte can make PDFium take all memory of a machine, or work for days. It does so in a process that the kernel
ends at its limits; the next document is read by a new one.
"""

import contextlib
import math
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from drag_ray.corpus.problems import Problem
from drag_ray.corpus.readers.document_parts import ReadingCosts
from drag_ray.corpus.readers.documents import Span, count_pages, read_document
from drag_ray.corpus.readers.page_reader import PageReader
from drag_ray.errors import DataError
from drag_ray.search.processes import end_with_parent
from drag_ray.types import Page

_OUT_OF_MEMORY = 3
"""Exit status of a process in which Python, and not a library, has found its memory used up."""
_START_S = 120.0
"""until a process has started, on a slow machine"""
_STRETCH = 10
"""times the CPU seconds of a document that it may take by the clock: a process that only waits, as for a disk that does not
answer, would not come to its end; one that shares its core with many others gets there"""
_KILL_S = 5.0
"""until a process that is killed has ended, if the kernel can end it"""


class DocumentProcess:
    """Reads documents in a process of its own, which starts with the first of them and again after one that ended it.

    Args:
        memory_gib: what the process may take.
        cpu_s: how long it may work on a document, in CPU seconds.
    """

    def __init__(self, memory_gib: float, cpu_s: float) -> None:
        self._memory_gib = memory_gib
        self._cpu_s = cpu_s
        self._process: Any = None
        self._connection: Connection | None = None

    def read(self, span: Span, root: Path, reader: PageReader, costs: ReadingCosts) -> tuple[list[Page], list[Problem]]:
        """`read_document`, and a problem where it goes beyond a limit, or its other parts cost too much (see `ReadingCosts`)."""
        if (reason := costs.find_reason(span)) is not None:
            return [], [Problem(span.name, reason, "broken_file")]
        try:
            pages, problems, cpu_s = self.run(_read_timed, span, root, reader)
        except DataError as error:
            costs.add(span, self._cpu_s, overrun=True)
            return [], [Problem(span.name, str(error), "broken_file")]
        costs.add(span, cpu_s)
        return pages, problems

    def count_pages(self, path: Path, max_pages: int) -> int:
        """`count_pages`, and 1 where the document says that it has more than `max_pages`, or goes beyond a limit: it is read at
        once then, which says what is wrong once, and not for each part of what is not there."""
        try:
            num_pages: int = self.run(count_pages, path)
        except DataError:
            return 1
        return num_pages if num_pages <= max_pages else 1

    def close(self) -> None:
        """End the process."""
        self._end()

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function in the process; return or raise what it does. Raises DataError: it ended the process, or did not come
        to an end."""
        if self._connection is None:
            self._start()
        assert self._connection is not None
        try:
            self._connection.send((function, args))
            clock_s = _START_S + _STRETCH * self._cpu_s
            if not self._connection.poll(clock_s):
                self._process.kill()
                self._end(_KILL_S)
                waited = f"reading it has not ended after {clock_s:g} seconds, in which it was waiting"
                raise DataError(f"{waited}. Look at the disk that it is on.")
            value, error = self._connection.recv()
        except (EOFError, OSError):
            self._end()
            raise DataError(self._explain(self._process.exitcode)) from None
        if error is not None:
            raise error
        return value

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # who reads may be a worker of Ray, with threads that a fork would break
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, self._memory_gib, self._cpu_s), daemon=True)
        self._process.start()
        other.close()  # so that its end is seen here

    def _end(self, timeout_s: float | None = None) -> None:
        """Close the connection, at whose end the process ends, and wait for that."""
        if self._connection is not None:
            self._connection.close()
            self._process.join(timeout_s)
            self._connection = None

    def _explain(self, status: int) -> str:
        if status == -signal.SIGXCPU:
            reason = f"reading it takes more than {self._cpu_s:g} CPU seconds (corpus.document_cpu_s)"
        else:
            ending = signal.Signals(-status).name if status < 0 else f"status {status}"
            limit = f"{self._memory_gib:g} GiB (corpus.document_memory_gib)"
            reason = f"the process that read it ended ({ending}), as it does where it needs more than {limit}"
        return f"{reason}. Print it to a new PDF, split it or remove it."


@cache
def open_process(memory_gib: float, cpu_s: float) -> DocumentProcess:
    """The one process that reads for this process, shared by all its parts."""
    return DocumentProcess(memory_gib, cpu_s)


def _serve(connection: Connection, memory_gib: float, cpu_s: float) -> None:
    """Run functions until the other end is closed; within the limits of each."""
    end_with_parent()
    num_bytes = int(memory_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (num_bytes, num_bytes))
    with contextlib.suppress(EOFError):
        while True:
            function, args = connection.recv()
            _limit_time(cpu_s)
            connection.send(_call(function, args))


def _read_timed(span: Span, root: Path, reader: PageReader) -> tuple[list[Page], list[Problem], float]:
    """`read_document`, and the CPU seconds that it took."""
    started = time.process_time()
    pages, problems = read_document(span, root, reader)
    return pages, problems, time.process_time() - started


def _limit_time(seconds: float) -> None:
    """Have the kernel end this process after so many more CPU seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime + seconds), hard))


def _call(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    try:
        return function(*args), None
    except MemoryError:
        os._exit(_OUT_OF_MEMORY)
    except Exception as error:
        return None, error
