"""Stage folders on disk: atomic writes, fingerprints, a manifest written last.

A stage folder without `manifest.json` is unfinished, whatever else lies in it.  The manifest says what
made the folder (stage, version, configuration, inputs), what is in it and how much; it holds the hash of
`checksums.jsonl`, which lists the files (see `checksums`), and one of itself.  `identity.json` is written first and
holds the same origin, so that a killed stage can tell on its next start whether what it finds is its own work.
"""

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray.errors import ArtifactError, DamageError, DataError
from drag_ray.storage import checksums
from drag_ray.storage.checksums import Checksum
from drag_ray.storage.file_access import list_folder, make_private, reading, writing
from drag_ray.storage.json_text import parse_json

MANIFEST_NAME = "manifest.json"
IDENTITY_NAME = "identity.json"
PREVIOUS_DIR_NAME = "_previous"
USER_CODE = "user code"
"""The input that stands for the user's own modules which a stage runs."""
_SCRATCH_SUFFIX = ".unfinished"


def compute_fingerprint(*parts: Any) -> str:
    """16 hexadecimal digits that stand for JSON-serialisable `parts` (paths count as text)."""
    text = json.dumps(parts, sort_keys=True, default=str, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def compute_file_fingerprint(path: Path) -> str:
    """16 hexadecimal digits that stand for the bytes of the file. Raises ArtifactError where it cannot be read."""
    with reading(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:16]


def compute_bytes_fingerprint(data: bytes) -> str:
    """16 hexadecimal digits that stand for these bytes: `compute_file_fingerprint` of a file that holds them."""
    return hashlib.sha256(data).hexdigest()[:16]


def write_text(path: Path, text: str) -> None:
    """Write a file that is either whole or absent. Raises ArtifactError where no space is left, or the folder cannot be
    written."""
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
def whole_or_absent(path: Path) -> Generator[Path]:
    """A scratch path in the same folder, renamed to `path` on success and removed on failure."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_SCRATCH_SUFFIX}")
        try:
            scratch.touch(exist_ok=False)  # with the mode that umask and folder give, which `tempfile` would not
            yield scratch
            sync(scratch)
            scratch.replace(path)
            sync(path.parent)
        finally:
            scratch.unlink(missing_ok=True)


def link_file(path: Path, target: Path) -> None:
    """Have a file in another place as well, without a copy where both are on one file system.

    Raises:
        ArtifactError: the disk refuses.
    """
    with writing(target):
        try:
            target.hardlink_to(path)
        except OSError:  # another file system, or one without such links
            write_bytes(target, path.read_bytes())


def sync_files(folder: Path, paths: Iterable[str]) -> None:
    """Bring files, whoever wrote them, and the folders that name them to the disk, so that a loss of power takes none of them.
    Raises ArtifactError where the disk refuses."""
    files = [folder / path for path in paths]
    # A folder is named by the one above it, up to `folder` itself.
    folders = {parent for file in files for parent in file.parents if parent == folder or folder in parent.parents}
    with writing(folder), ThreadPoolExecutor() as pool:
        list(pool.map(sync, files))
        list(pool.map(sync, {folder, *folders}))


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_scratch(folder: Path) -> None:
    """Remove what writers that were killed have left anywhere in a folder that nobody else writes."""
    for path in folder.rglob(f".*{_SCRATCH_SUFFIX}"):
        if path.is_file():
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Identity:
    """Identity of a stage folder's content: change any part and the stage must run again.

    Five are no such parts: `max_tries` says how often work that fails is tried before it is set aside, `command` what to run
    when the folder is damaged (by default the job of the stage), `address` where in the run the folder is (by default the stage's
    name), `reads` where the stages are whose outcomes are among the `inputs`, and `way_counts` which counts tell of the way to
    its own outcome, which is the same by any.
    """

    stage: str
    config: dict[str, Any]
    inputs: dict[str, str]
    version: int = 1
    max_tries: int = 0
    command: str = ""
    address: str = ""
    reads: dict[str, str] = field(default_factory=dict)
    way_counts: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        return compute_fingerprint(self.stage, self.config, self.inputs, self.version)

    def to_dict(self) -> dict[str, Any]:
        return {
            "stage": self.address or self.stage,
            "fingerprint": self.fingerprint,
            "inputs": self.inputs,
            "reads": self.reads,
            "way_counts": self.way_counts,
            "version": self.version,
            "config": self.config,
            "max_tries": self.max_tries,
            "command": self.command or f"python jobs/{self.stage}.py --verify",
        }


@dataclass(frozen=True)
class Manifest:
    """The record of a stage that has come to its end. `stage` is its address in the run.

    `counts` are the figures of its summary line. A count named `unfinished` is the work that was lost and is tried again
    when the stage is started again, one named `set_aside` the work that failed `max_tries` times and is tried again when more
    tries are allowed; readers can use what there is. `checksums` is the hash of the list of its files, and `accepted` the same
    where the files were changed by hand and that was accepted. `spent` is what its machines have cost, where that is known.
    """

    stage: str
    fingerprint: str
    counts: dict[str, Any] = field(default_factory=dict)
    duration_s: float = 0.0
    origin: dict[str, Any] = field(default_factory=dict)
    max_tries: int = 0
    command: str = ""
    checksums: str = ""
    accepted: str = ""
    finished_at: str = ""
    spent: dict[str, float] = field(default_factory=dict)

    def is_settled(self, max_tries: int) -> bool:
        """True if nothing is left to try with so many tries."""
        may_try_again = self.counts.get("set_aside", 0) and max_tries > self.max_tries
        return not self.counts.get("unfinished", 0) and not may_try_again

    @property
    def outcome_fingerprint(self) -> str:
        """Fingerprint of the outcome: the same stage with the same options can come out otherwise, as sampling does."""
        way_counts = self.origin.get("way_counts", ())
        counts = {name: value for name, value in self.counts.items() if name not in way_counts}
        return compute_fingerprint(self.fingerprint, counts, self.accepted)


def is_begun(stage_dir: Path) -> bool:
    """True if a folder holds a stage, finished or not."""
    return (stage_dir / IDENTITY_NAME).exists() or (stage_dir / MANIFEST_NAME).exists()


def read_identity(stage_dir: Path) -> dict[str, Any]:
    """The identity of a stage's folder, as `Identity.to_dict` gives it; empty where there is none that can be read."""
    return read_object(stage_dir / IDENTITY_NAME)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file; empty where there is none that can be read."""
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read_command(stage_dir: Path) -> str:
    """Command of a stage: as its identity says, or by the name of its folder where that does not."""
    return read_identity(stage_dir).get("command") or f"python jobs/{stage_dir.name}.py --verify"


def read_manifest(stage_dir: Path) -> Manifest | None:
    """The manifest of a finished stage folder, or None when the stage has not finished. Raises DamageError where the manifest is
    there but cannot be read, or is not what was written, and ArtifactError where memory is used up."""
    path = stage_dir / MANIFEST_NAME
    with reading(path):
        try:
            return parse_manifest(path.read_bytes())
        except FileNotFoundError:
            return None
        except KeyError as error:
            problem = f"has no {error}, as one of an earlier version"
        except (OSError, ValueError, TypeError, AttributeError) as error:
            problem = f"not a manifest ({error})"
        raise DamageError(f"{path}: {problem}. Run: {read_command(stage_dir)}")


def parse_manifest(data: bytes) -> Manifest:
    """The manifest in the bytes of its file.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: it is none, or not what was written.
    """
    raw = parse_json(data.decode())
    if raw.pop("sha256") != compute_fingerprint(raw):
        raise ValueError("it holds other values than were written")
    return Manifest(**{item.name: raw[item.name] for item in fields(Manifest)})


def write_manifest(stage_dir: Path, manifest: Manifest) -> None:
    """Write a manifest with the hash of itself."""
    record = parse_json(json.dumps(asdict(manifest), default=str))  # as it will be read
    write_json(stage_dir / MANIFEST_NAME, {**record, "sha256": compute_fingerprint(record)})


def write_list(stage_dir: Path, manifest: Manifest, listed: Sequence[Checksum], accept: bool = False) -> None:
    """Write the list of a stage's files, and the manifest that knows it, when the files have come to the disk. `accept`: the
    files are not what the stage has written, and are accepted so."""
    sync_files(stage_dir, [checksum.path for checksum in listed])
    text = checksums.format_list(listed)
    digest = compute_bytes_fingerprint(text.encode())
    write_text(stage_dir / checksums.LIST_NAME, text)
    write_manifest(stage_dir, replace(manifest, checksums=digest, accepted=digest if accept else ""))


def require_manifest(stage_dir: Path, command: str = "") -> Manifest:
    """The manifest of a stage that another stage reads. Raises ArtifactError where the stage has not finished, or its manifest is
    damaged. `command`: what runs it; without one, what `read_command` says."""
    manifest = read_manifest(stage_dir)
    if manifest is None:
        command = command or read_command(stage_dir)
        raise ArtifactError(f"{stage_dir}: no {MANIFEST_NAME}, so this stage has not finished. Run: {command}")
    return manifest


@contextmanager
def new_folder(folder: Path, remedy: str) -> Generator[Path]:
    """A scratch folder to write into; on success it is brought to the disk and becomes `folder`, on failure it is removed.

    It is its owner's alone (see `file_access.make_private`). Raises DataError where something is there, and ArtifactError where
    the disk refuses.

    Args:
        folder: what is not there yet, or empty.
        remedy: follows "is there already" where it is not.
    """
    if folder.exists() and (not folder.is_dir() or list_folder(folder)):
        raise DataError(f"{folder}: is there already{remedy}")
    with writing(folder):
        make_private(folder.parent)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=_SCRATCH_SUFFIX))
        try:
            yield scratch
            sync_files(scratch, checksums.list_files(scratch))
            scratch.chmod(0o700)  # `shutil.copytree` gives it the mode of what it copies
            scratch.replace(folder)
            sync(folder.parent)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def replaced_folder(folder: Path) -> Generator[Path]:
    """A scratch folder to write into; on success it takes the place of `folder`, on failure it is removed.

    Writers of one folder take turns, and what one that was killed has left is removed. Raises ArtifactError where the disk
    refuses.
    """
    from filelock import FileLock

    scratch = folder.with_name(f".{folder.name}{_SCRATCH_SUFFIX}")
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".lock-{folder.name}")):
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            try:
                yield scratch
                shutil.rmtree(folder, ignore_errors=True)
                scratch.rename(folder)
                sync(folder.parent)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
