"""Stage folders: atomic writes, a manifest written last, fingerprints, one writer at a time.

A stage folder without `manifest.json` is unfinished, whatever else lies in it.  The manifest says what
made the folder (stage, configuration, inputs, code version), what is in it and how much.  `identity.json`
is written first and holds the same origin, so that a killed stage can tell on its next start whether what
it finds is its own work to go on with.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray.errors import ArtifactError

MANIFEST_NAME = "manifest.json"
IDENTITY_NAME = "identity.json"
PREVIOUS_DIR_NAME = "_previous"
_LOCK_NAME = ".lock"


def compute_fingerprint(*parts: Any) -> str:
    """16 hexadecimal digits that stand for JSON-serialisable `parts` (paths count as text)."""
    text = json.dumps(parts, sort_keys=True, default=str, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def compute_file_fingerprint(path: Path) -> str:
    """16 hexadecimal digits that stand for the bytes of the file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:16]


def compute_bytes_fingerprint(data: bytes) -> str:
    """16 hexadecimal digits that stand for these bytes: `compute_file_fingerprint` of a file that holds them."""
    return hashlib.sha256(data).hexdigest()[:16]


def create_mark(path: Path) -> bool:
    """Create an empty file. False if it is there already.

    Raises:
        ArtifactError: no space is left, or the folder cannot be written.
    """
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError as error:
        raise _unwritable(path, error) from error
    return True


def write_text(path: Path, text: str) -> None:
    """Write a file that is either whole or absent.

    Raises:
        ArtifactError: no space is left, or the folder cannot be written.
    """
    with whole_or_absent(path) as scratch:
        scratch.write_text(text, encoding="utf-8")


def write_bytes(path: Path, data: bytes) -> None:
    """Write a binary file, whole or not at all."""
    with whole_or_absent(path) as scratch:
        scratch.write_bytes(data)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, whole or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write one JSON object a line, whole or not at all."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a Parquet file (zstd), whole or not at all."""
    with whole_or_absent(path) as scratch:
        pq.write_table(table, scratch, compression="zstd")


@contextlib.contextmanager
def whole_or_absent(path: Path) -> Iterator[Path]:
    """A scratch path in the same folder, renamed to `path` on success and removed on failure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch_name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        scratch = Path(scratch_name)
        try:
            yield scratch
            with scratch.open("rb") as stream:
                os.fsync(stream.fileno())
            scratch.chmod(0o644)
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> ArtifactError:
    return ArtifactError(f"{path}: cannot be written ({error.strerror or error}). Free some space or choose another --run-dir.")


@dataclass(frozen=True)
class Identity:
    """What makes the content of a stage folder: change any part and the stage must run again.

    `max_tries` is no such part: it says how often work that fails is tried before it is set aside.
    """

    stage: str
    config: dict[str, Any]
    inputs: dict[str, str]
    code: str
    max_tries: int = 0

    @property
    def fingerprint(self) -> str:
        return compute_fingerprint(self.stage, self.config, self.inputs, self.code)

    def to_dict(self) -> dict[str, Any]:
        return {
            "stage": self.stage,
            "fingerprint": self.fingerprint,
            "inputs": self.inputs,
            "code": self.code,
            "config": self.config,
            "max_tries": self.max_tries,
        }


@dataclass(frozen=True)
class Manifest:
    """The record of a stage that has come to its end.

    `counts` are the figures of its summary line. A count named `unfinished` is the work that was lost and is tried again
    when the stage is started again, one named `set_aside` the work that failed `max_tries` times and is tried again when more
    tries are allowed; readers can use what there is.
    """

    stage: str
    fingerprint: str
    counts: dict[str, Any] = field(default_factory=dict)
    duration_s: float = 0.0
    origin: dict[str, Any] = field(default_factory=dict)
    max_tries: int = 0

    def is_settled(self, max_tries: int) -> bool:
        """True if nothing is left to try with so many tries."""
        may_try_again = self.counts.get("set_aside", 0) and max_tries > self.max_tries
        return not self.counts.get("unfinished", 0) and not may_try_again

    @property
    def outcome_fingerprint(self) -> str:
        """Stands for what came out: the same stage with the same options can come out otherwise, as sampling does."""
        return compute_fingerprint(self.fingerprint, self.counts)


def read_manifest(stage_dir: Path) -> Manifest | None:
    """The manifest of a finished stage folder, or None when the stage has not finished.

    Raises:
        ArtifactError: the manifest is there but cannot be read.
    """
    path = stage_dir / MANIFEST_NAME
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return Manifest(
            stage=raw["stage"],
            fingerprint=raw["fingerprint"],
            counts=raw["counts"],
            duration_s=raw["duration_s"],
            origin={key: raw[key] for key in ("inputs", "code", "config")},
            max_tries=raw.get("max_tries", 0),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            f"{path}: not a manifest ({error!r}). Remove the folder {stage_dir} and run the stage again."
        ) from error


def require_manifest(stage_dir: Path) -> Manifest:
    """The manifest of a stage that another stage reads.

    Raises:
        ArtifactError: the stage has not finished.
    """
    manifest = read_manifest(stage_dir)
    if manifest is None:
        raise ArtifactError(
            f"{stage_dir}: no {MANIFEST_NAME}, so this stage has not finished. Run: python jobs/{stage_dir.name}.py"
        )
    return manifest


class StageFolder:
    """A stage's folder while the stage runs. Use it as a context manager.

    Entering takes the folder's lock and settles what is found there: unfinished work of the same identity
    is kept (`resumed` is True) and loses its manifest, anything else is moved to `_previous/` beside it, never deleted.
    `finish` writes the manifest; leaving without it leaves the folder unfinished.
    """

    def __init__(self, path: Path, identity: Identity) -> None:
        self.path = path
        self.identity = identity
        self.resumed = False
        self._started = 0.0
        self._lock: Any = None

    def is_finished(self) -> bool:
        """True if the folder already holds the finished work of this very identity, with nothing left to try again."""
        manifest = read_manifest(self.path)
        if manifest is None or manifest.fingerprint != self.identity.fingerprint:
            return False
        return manifest.is_settled(self.identity.max_tries)

    def __enter__(self) -> "StageFolder":
        self._started = time.monotonic()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        found = self._read_identity()
        self.resumed = found == self.identity.fingerprint and not self.is_finished()
        if self.resumed:
            (self.path / MANIFEST_NAME).unlink(missing_ok=True)
            return self
        if self.path.exists() and any(self.path.iterdir()):
            self._set_aside(found or "unknown")
        self.path.mkdir(exist_ok=True)
        write_json(self.path / IDENTITY_NAME, self.identity.to_dict())
        return self

    def __exit__(self, *exception: object) -> None:
        self._lock.close()
        self._lock = None

    def finish(self, counts: dict[str, Any]) -> Manifest:
        """Write the manifest, the last act of a stage."""
        duration_s = round(time.monotonic() - self._started, 2)
        finished_at = datetime.now(UTC).isoformat(timespec="seconds")
        record = {**self.identity.to_dict(), "counts": counts, "duration_s": duration_s, "finished_at": finished_at}
        write_json(self.path / MANIFEST_NAME, record)
        manifest = read_manifest(self.path)
        assert manifest is not None
        return manifest

    def _take_lock(self) -> None:
        lock_path = self.path.parent / f"{_LOCK_NAME}-{self.path.name}"
        self._lock = lock_path.open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise ArtifactError(
                f"{self.path}: another run is writing this folder. Wait for it, stop it, or choose another --run-dir."
            ) from None

    def _read_identity(self) -> str | None:
        try:
            return json.loads((self.path / IDENTITY_NAME).read_text(encoding="utf-8"))["fingerprint"]
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
            return None

    def _set_aside(self, found: str) -> None:
        target = self.path.parent / PREVIOUS_DIR_NAME / f"{self.path.name}-{found}-{time.strftime('%Y%m%d-%H%M%S')}"
        target.parent.mkdir(exist_ok=True)
        shutil.move(self.path, target)
        print(f"{self.path}: holds the work of other inputs, options or code; moved to {target}")
