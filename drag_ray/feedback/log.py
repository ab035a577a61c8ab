"""Append-only table of events beside a run, in files of lines of JSON: one for each process and day.

feedback/
  secret                          signs search ids; for its owner alone
  2026-03-01-3f9a0c12.jsonl       a search or a mark a line, of one process of the endpoint on one day (UTC)
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from drag_ray.errors import ArtifactError, DataError
from drag_ray.feedback.events import EVENT, Event
from drag_ray.storage.appended_lines import append_lines, parse_lines
from drag_ray.storage.artifacts import whole_or_absent
from drag_ray.storage.file_access import list_folder, make_private, reading, writing

DIR_NAME = "feedback"
"""in the folder of a run"""
_SECRET_NAME = "secret"
_SECRET_BYTES = 32
_MAX_FILE_BYTES = 2**28
"""of a process on one day: searches cost less than the disk has to take of them"""
_TEND_EVERY_S = 600.0
_DATE_CHARS = len("2026-03-01")

_logger = logging.getLogger(__name__)


def make_secret(folder: Path) -> None:
    """Make the secret of a folder unless it has one. Raises ArtifactError where the disk refuses."""
    from filelock import FileLock

    path = make_private(folder) / _SECRET_NAME
    with writing(path), FileLock(path.with_name(f".lock-{_SECRET_NAME}")):  # several endpoints of a run have one
        if not path.exists():
            with whole_or_absent(path) as scratch:
                scratch.chmod(0o600)
                scratch.write_bytes(secrets.token_bytes(_SECRET_BYTES))


def read_secret(folder: Path) -> bytes:
    """The secret of a folder. Raises ArtifactError where it cannot be read, or is none."""
    path = folder / _SECRET_NAME
    with reading(path, remedy="Remove it, and start the endpoint again: search ids that were given out are worth nothing then."):
        secret = path.read_bytes()
        if len(secret) != _SECRET_BYTES:
            raise ValueError(f"{len(secret)} bytes, expected {_SECRET_BYTES}")
    return secret


class EventLog:
    """The events of one process. Those that come while others are written are written together. After `retention_days` the events
    of all processes are removed."""

    def __init__(self, folder: Path, retention_days: int, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._retention_days = retention_days
        self._clock = clock
        self._process = secrets.token_hex(4)
        self._tending: asyncio.Task[None] | None = None
        self._batch = _Batch()
        self._writing = asyncio.Lock()

    async def append(self, event: Event) -> None:
        """Keep an event; it is on the disk then. Raises ArtifactError where the disk refuses, or this process has written as much
        today as it may."""
        if self._tending is None:
            self._tending = asyncio.create_task(self._tend())
        batch = self._batch
        batch.events.append(event)
        await asyncio.shield(self._write_once(batch))  # who hangs up does not end the writing for the others

    async def _write_once(self, batch: "_Batch") -> None:
        async with self._writing:
            if not batch.is_written:
                self._batch = _Batch()  # who comes from now on waits for the next one
                await asyncio.to_thread(self._write, batch.events)
                batch.is_written = True

    def _write(self, events: list[Event]) -> None:
        path = self._folder / f"{self._find_today()}-{self._process}.jsonl"
        with writing(path):
            is_full = path.exists() and path.stat().st_size > _MAX_FILE_BYTES
        if is_full:
            raise ArtifactError(f"{path}: holds {_MAX_FILE_BYTES:,} bytes, all that a process keeps in a day.")
        append_lines(path, map(asdict, events))

    def _find_today(self) -> date:
        return datetime.fromtimestamp(self._clock(), UTC).date()

    async def _tend(self) -> None:
        """Remove what has expired, from the first event on, also where no other comes."""
        while True:
            try:
                await asyncio.to_thread(self.remove_expired)
            except ArtifactError as error:
                _logger.error("feedback that is older than serve.feedback.retention_days cannot be removed: %s", error)
            await asyncio.sleep(_TEND_EVERY_S)

    def remove_expired(self) -> None:
        """Remove the files of days before those that are retained, whoever has written them. Raises ArtifactError where the disk
        refuses."""
        first = self._find_today() - timedelta(days=self._retention_days)
        for path in list_folder(self._folder, "*.jsonl"):
            if path.name[:_DATE_CHARS] < str(first):
                with writing(path):
                    path.unlink(missing_ok=True)
                _logger.info("%s: removed, for it is older than serve.feedback.retention_days", path)


class _Batch:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.is_written = False


def require_feedback(run_dir: Path) -> Path:
    """The folder with the feedback of a run. Raises DataError where there is none."""
    folder = run_dir / DIR_NAME
    if not folder.is_dir():
        raise DataError(f"{folder}: no feedback. Serve the run with --serve.feedback.enabled.")
    return folder


def read_events(folder: Path) -> Iterator[Event]:
    """The events of all processes, file by file. An endpoint may write meanwhile: a line that has no end yet is left out. Raises
    ArtifactError where a file cannot be read."""
    for path in list_folder(folder, "*.jsonl"):
        with reading(path), path.open("rb") as stream:
            yield from parse_lines(path, (line for line in stream if line.endswith(b"\n")), EVENT)
