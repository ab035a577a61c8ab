"""A layer under the file access of the process: it counts what reaches the files of a folder, and fails one access of them.

What libraries do in their own code is out of its sight, but for where they are asked to open a file.
"""

import builtins
import errno
import io
import os
import resource
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tantivy

from drag_ray.errors import DragRayError

ERRORS: dict[str, Callable[[], BaseException]] = {
    "ENOSPC": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "EIO": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    "EACCES": lambda: PermissionError(errno.EACCES, os.strerror(errno.EACCES)),
    "MemoryError": MemoryError,
}
INJECTED: Counter[str] = Counter()
"""How many faults of each kind were injected so far; `benchmarks/inject_faults.py` keeps them."""
_OS_CALLS = ("open", "fsync", "replace", "rename", "mkdir", "unlink", "truncate", "scandir", "listdir")
_NATIVE_CALLS = {
    pq: ("read_table", "read_schema", "ParquetFile"),
    pa: ("memory_map", "OSFile"),
    pl: ("read_parquet", "scan_parquet", "scan_ipc"),
}
"""By which the project has libraries open files in code of their own; what they then read, `test_native_reads.py` fails."""
_WRITING = ("os.open", "os.mkdir", "write", "torn write")
"""What a full disk refuses."""


class FileLayer:
    """Patches the functions that reach files, for those below `root`.

    Attributes:
        accesses: what has been done, such as `os.fsync index/pages.arrow`.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.accesses: list[str] = []
        self._root = os.path.realpath(root)
        self._fails: Callable[[str], bool] = lambda kind: False
        self._raise: Callable[[], BaseException] = MemoryError
        for name in _OS_CALLS:
            monkeypatch.setattr(os, name, self._wrap(f"os.{name}", getattr(os, name)))
        for module, names in _NATIVE_CALLS.items():
            for name in names:
                monkeypatch.setattr(module, name, self._wrap(name, getattr(module, name)))
        monkeypatch.setattr(tantivy, "Index", _NativeIndex(self._wrap))
        for module in (io, builtins):
            monkeypatch.setattr(module, "open", self._wrap_open(module.open))
        monkeypatch.setattr(pq, "write_table", self._wrap_write_table(pq.write_table))

    @contextmanager
    def failing(self, at: int, error: str) -> Iterator[None]:
        """The access with this number fails; a disk that is full refuses all that write from then on."""
        self.accesses.clear()
        self._raise = ERRORS[error]
        is_full = error == "ENOSPC"
        self._fails = lambda kind: len(self.accesses) - 1 == at or (is_full and len(self.accesses) - 1 > at and kind in _WRITING)
        try:
            yield
        finally:
            self._fails = lambda kind: False

    def _note(self, kind: str, path: Any) -> bool:
        """True if the access is to fail."""
        name = str(Path(f"/proc/self/fd/{path}").readlink()) if isinstance(path, int) else os.fsdecode(path)
        if not f"{name}/".startswith(f"{self._root}/"):
            return False
        self.accesses.append(f"{kind} {os.path.relpath(name, self._root)}")
        return self._fails(kind)

    def _wrap(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **options: Any) -> Any:
            place = path[0] if isinstance(path, list) and path else path
            if isinstance(place, int | str | os.PathLike) and not options.get("dir_fd") and self._note(kind, place):
                raise self._raise()
            return function(path, *args, **options)

        return call

    def _wrap_open(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if isinstance(path, int):
                return function(path, mode, *args, **options)
            writes = mode[0] in "wa"
            if self._note("write" if writes else "read", path):
                raise self._raise()
            stream = function(path, mode, *args, **options)
            return _TornStream(stream, self._raise) if writes and self._note("torn write", path) else stream

        return call

    def _wrap_write_table(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(table: Any, where: Any, *args: Any, **options: Any) -> Any:
            if not isinstance(where, str | os.PathLike):
                return function(table, where, *args, **options)
            if self._note("write", where):
                raise self._raise()
            function(table, where, *args, **options)
            if self._note("torn write", where):
                os.truncate(where, Path(where).stat().st_size // 2)
                raise self._raise()
            return None

        return call


class _NativeIndex:
    """Tantivy's class, whose own functions cannot be patched."""

    def __init__(self, wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> None:
        self.open = wrap("Index.open", tantivy.Index.open)
        create: Any = tantivy.Index
        self._create = wrap("Index", lambda path, *args, **options: create(*args, path=path, **options))

    def __call__(self, schema: Any, path: str, **options: Any) -> Any:
        return self._create(path, schema, **options)


class _TornStream:
    """A stream of which only the half of what is written gets to the file."""

    def __init__(self, stream: Any, build_error: Callable[[], BaseException]) -> None:
        self._stream = stream
        self._build_error = build_error

    def write(self, data: Any) -> int:
        self._stream.write(data[: len(data) // 2])
        self._stream.flush()
        raise self._build_error()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> "_TornStream":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stream.close()


def fail_each_access(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: str,
    prepare: Callable[[Path], None],
    act: Callable[[Path], object],
    check: Callable[[Path], None],
    step: int = 1,
) -> int:
    """Do something once for each of its accesses, which fails then; afterwards do it again, undisturbed.

    Args:
        root: an empty folder.
        prepare: makes what is there before, in a folder.
        act: what is done. It may raise an error of the project, or get over the failure.
        check: asserts that nothing there is taken for whole which is not; called after both.
        step: 3 takes each third access.

    Returns:
        How many accesses there were.
    """
    prepare(root / "first")
    layer = FileLayer(root, monkeypatch)
    with layer.failing(sys.maxsize, error):
        act(root / "first")
        num_accesses = len(layer.accesses)
    check(root / "first")
    assert num_accesses
    for number in range(step - 1, num_accesses, step):
        folder = root / str(number)
        prepare(folder)
        with layer.failing(number, error):
            try:
                act(folder)
            except DragRayError:
                pass
            except BaseException as raised:
                raise AssertionError(f"{error} at {layer.accesses[number]}: {raised!r}") from raised
            failed = layer.accesses[number]
            INJECTED[error] += 1
        try:
            check(folder)
            act(folder)
            check(folder)
        except BaseException as raised:
            raise AssertionError(f"after {error} at {failed}: {raised!r}") from raised
        shutil.rmtree(folder)
    return num_accesses


@contextmanager
def limit_files(num_bytes: int) -> Iterator[None]:
    """The kernel refuses to make a file larger, whoever writes it: what a full disk is to native code."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
