"""Finished stages of a run in an object store: sent with the manifest last, fetched whole or not at all.

    URI/stages/<address>/manifest.json  that of the stage that stands there now
    URI/files/<address>/<checksums>/    the folder of each that ever stood there: its files, their list and its manifest

`checksums` is the hash of the list (see `Manifest`), so that no folder holds files of two states of a stage: a push that was
interrupted goes on, and pushes that run at the same time do not mix.
"""

import contextlib
import logging
import re
import shutil
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from drag_ray.errors import ArtifactError, ConfigError, DamageError, StorageError
from drag_ray.stage_runs.address import is_name
from drag_ray.stage_runs.damage import list_finished, read_list, refuse_damage
from drag_ray.storage import artifacts, checksums
from drag_ray.storage.artifacts import MANIFEST_NAME, Manifest, is_begun
from drag_ray.storage.checksums import LIST_NAME, Checksum
from drag_ray.storage.file_access import make_private, writing
from drag_ray.storage.object_store import CONNECTIONS, ObjectStore, StorageConfig

_logger = logging.getLogger(__name__)

_HASH = re.compile(r"[0-9a-f]{16,64}")
_PATH = re.compile(r"(?!\.)[^/\0]+(/(?!\.)[^/\0]+)*")
"""of a file in a folder: nothing in it is hidden, empty or `..`"""


@dataclass(frozen=True)
class Transfer:
    """Counts of a push or a pull: files and bytes moved, and files that were there already."""

    num_files: int
    num_bytes: int
    num_there: int

    def __str__(self) -> str:
        return f"{self.num_files:,} files, {self.num_bytes:,} bytes; {self.num_there:,} files were there"


@dataclass(frozen=True)
class StoredStage:
    """A finished stage of a run that a store has too: its folder, its address in the run, and the hash of its list of files."""

    folder: Path
    address: str
    checksums: str
    storage: StorageConfig


class StageStore:
    """The finished stages that lie at a URI. Raises ConfigError where the URI is none, and StorageError where the store does not
    answer. `config`: `uri` is not empty."""

    def __init__(self, config: StorageConfig) -> None:
        self._objects = ObjectStore(config.uri)
        self.uri = self._objects.uri

    def list_addresses(self) -> list[str]:
        """Sorted addresses of the stages that lie here."""
        keys = (state.key.split("/") for state in self._objects.list_states("stages"))
        return sorted("/".join(parts[1:-1]) for parts in keys if parts[-1] == MANIFEST_NAME and all(map(is_name, parts[1:-1])))

    def read_manifest(self, address: str) -> Manifest | None:
        """The manifest of a stage, None where none was pushed. Raises DamageError where it is there, and is not what was written,
        and StorageError where the address is none."""
        found = self._find(address)
        return found[0] if found else None

    def push(self, run_dir: Path, address: str) -> Transfer | None:
        """Send a finished stage, the manifest last. None if it is there as it is here. Raises ArtifactError where it has not
        finished, or its files are not what was written, and StorageError where the store refuses; what was sent is kept, and not
        sent again."""
        stage_dir = run_dir / address
        manifest = artifacts.require_manifest(stage_dir)
        folder, twins = _name_folder(address, manifest.checksums), dict[Checksum, str]()
        with contextlib.suppress(DamageError):  # what is not what was written counts for nothing, and is written again
            if before := self.read_manifest(address):
                listed_before = self._read_list(before)[1]
                if before == manifest:
                    _logger.info(f"{address}: is in {self.uri}")
                    return None
                twins = {checksum: f"{_name_folder(address, before.checksums)}/{checksum.path}" for checksum in listed_before}
        refuse_damage(stage_dir, whole=True)
        listed = read_list(stage_dir, manifest) or []
        there = {state.key: state.bytes for state in self._objects.list_states(folder)}
        missing = [checksum for checksum in listed if there.get(f"{folder}/{checksum.path}") != checksum.bytes]

        def send(checksum: Checksum) -> int | None:
            path, twin = checksum.path, twins.get(checksum, "")
            return checksum.bytes if self._objects.send(stage_dir / path, f"{folder}/{path}", twin) else None

        with ThreadPoolExecutor(CONNECTIONS) as pool:
            sent = [num_bytes for num_bytes in pool.map(send, missing) if num_bytes is not None]
        for name in (LIST_NAME, MANIFEST_NAME):
            self._objects.send(stage_dir / name, f"{folder}/{name}")
        self._objects.send(stage_dir / MANIFEST_NAME, _name_manifest(address))
        transfer = Transfer(len(sent), sum(sent), len(listed) - len(sent))
        _logger.info(f"{address}: pushed to {self.uri}: {transfer}")
        return transfer

    def pull(self, address: str, run_dir: Path, only: str = "", without: Collection[str] = ()) -> Transfer | None:
        """Fetch a stage into a run's folder, which then has all of it, or none. None if it is there already.

        Whoever asks first fetches it, while others wait.

        Args:
            only: the hash of the list of its files; any where nothing is said.
            without: folders of the stage that are left where they are.

        Raises:
            ArtifactError: the run has a stage of other work, or an unfinished one, there.
            StorageError: it was not pushed, or the store refuses; what was fetched is kept, and not fetched again.
            DamageError: it is not what was pushed.
        """
        found = self._find(address)
        if found is None:
            raise StorageError(f"{self.uri}: no finished stage {address}. It has {', '.join(self.list_addresses()) or 'none'}.")
        if only not in ("", found[0].checksums):
            raise StorageError(f"{self.uri}: has another {address} than the run. Run: drag-ray push RUN {self.uri}")
        return self._pull(*found, run_dir, without)

    def _pull(self, manifest: Manifest, data: bytes, run_dir: Path, without: Collection[str] = ()) -> Transfer | None:
        """As `pull`, of a manifest that was read as `data`."""
        from filelock import FileLock

        address = manifest.stage
        stage_dir = make_private(run_dir) / address
        with writing(stage_dir):
            stage_dir.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(stage_dir.parent / f".pulling-{stage_dir.name}.lock"):
            if not is_begun(stage_dir):
                transfer = self._fetch_stage(manifest, data, stage_dir, without)
                _logger.info(f"{address}: pulled from {self.uri}: {transfer}")
                return transfer
            own = artifacts.read_manifest(stage_dir)
            if own and own.checksums == manifest.checksums:
                _logger.info(f"{address}: is there")
                return None
            raise ArtifactError(f"{stage_dir}: holds other work than {self.uri}. Choose another run, or move it away.")

    def pull_lineage(self, address: str, run_dir: Path) -> dict[str, Transfer | None]:
        """Fetch a stage, and the stages that it was made from, as far as they are here and the run has nothing in their places.
        Returns what was moved of each that was fetched. Errors are those of `pull`."""
        moved: dict[str, Transfer | None] = {}
        wanted: list[tuple[str, str | None]] = [(address, None)]
        for stage, outcome in wanted:  # which grows
            found = self._find(stage)
            if found and outcome in (None, found[0].outcome_fingerprint):
                manifest, data = found
                if not is_begun(run_dir / stage):
                    moved[stage] = self._pull(manifest, data, run_dir)
                inputs = manifest.origin.get("inputs", {})
                read = [(place, inputs.get(name, "")) for name, place in manifest.origin.get("reads", {}).items()]
                wanted += [ancestor for ancestor in read if ancestor not in wanted]
        return moved

    def push_run(self, run_dir: Path) -> dict[str, Transfer | None]:
        """Send the finished stages of a run; by the address of each what `push` returns, whose errors are the same. Raises
        ConfigError where the folder is that of a stage."""
        moved: dict[str, Transfer | None] = {}
        for stage_dir in list_finished(run_dir):
            address = artifacts.require_manifest(stage_dir).stage
            if run_dir / address != stage_dir:
                raise ConfigError(f"{run_dir}: {stage_dir} is the stage {address} of a run. Give the run's folder.")
            moved[address] = self.push(run_dir, address)
        return moved

    def pull_run(self, run_dir: Path, addresses: Sequence[str]) -> dict[str, Transfer | None]:
        """Fetch stages, all where none are named, and what they were made from; by the address of each what `pull` returns, whose
        errors are the same."""
        moved: dict[str, Transfer | None] = {}
        there = self.list_addresses()
        if not there:
            raise StorageError(f"{self.uri}: no finished stage lies there. Give the URI that a run was pushed to.")
        for address in addresses or there:
            if address not in moved:
                moved[address] = self.pull(address, run_dir)
            moved |= self.pull_lineage(address, run_dir)
        return moved

    def fetch_file(self, address: str, digest: str, checksum: Checksum, path: Path) -> None:
        """Fetch one file of a stage; it is whole or absent.

        Args:
            digest: the hash of the list of the stage's files.

        Raises:
            StorageError: it is not there, or the store refuses.
            DamageError: it is not what was pushed.
            ArtifactError: the disk refuses.
        """
        folder = _name_folder(address, digest)
        with artifacts.whole_or_absent(path) as scratch:
            self._objects.fetch(f"{folder}/{checksum.path}", scratch)
            if problem := checksums.compare(scratch, checksum):
                raise self._tell_damage(f"{folder}/{checksum.path}", f"{problem}. Remove {self.uri}/{folder}")

    def _find(self, address: str) -> tuple[Manifest, bytes] | None:
        """The manifest of a stage, and as it was read; None where none was pushed. Errors are those of `read_manifest`."""
        if not all(map(is_name, address.split("/"))):
            raise StorageError(f"{self.uri}: {address!r} is no stage of a run, as collect or finetune/dpo.")
        data = self._objects.read(_name_manifest(address))
        if data is None:
            return None
        try:
            manifest = artifacts.parse_manifest(data)
            if manifest.stage != address or not _HASH.fullmatch(manifest.checksums):
                raise ValueError(f"it is that of {manifest.stage!r}")
            if not all(isinstance(name, str) for key in ("reads", "inputs") for name in manifest.origin.get(key, {}).values()):
                raise ValueError("it does not say what was read")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise self._tell_damage(_name_manifest(address), f"not a manifest ({error})") from None
        return manifest, data

    def _read_list(self, manifest: Manifest) -> tuple[bytes, list[Checksum]]:
        """The list of a stage's files, none of which leads out of its folder."""
        key = f"{_name_folder(manifest.stage, manifest.checksums)}/{LIST_NAME}"
        data = self._objects.read(key)
        if data is None or artifacts.compute_bytes_fingerprint(data) != manifest.checksums:
            raise self._tell_damage(key, "missing, as in a store of an earlier version, or not what was written")
        try:
            listed = checksums.parse_list(data.decode())
            _check_paths(listed)
        except (ValueError, TypeError) as error:
            raise self._tell_damage(key, f"not a list of files ({error})") from None
        return data, listed

    def _tell_damage(self, key: str, problem: str) -> DamageError:
        return DamageError(f"{self.uri}/{key}: {problem}. Where the run is whole, run: drag-ray push RUN {self.uri}")

    def _fetch_stage(self, manifest: Manifest, data: bytes, stage_dir: Path, without: Collection[str]) -> Transfer:
        """Files come into a hidden folder, which becomes the stage's when it is whole and on the disk."""
        address, digest = manifest.stage, manifest.checksums
        scratch = stage_dir.parent / f".pulling-{stage_dir.name}-{digest}"
        text, listed = self._read_list(manifest)
        listed = [checksum for checksum in listed if checksum.path.partition("/")[0] not in without]
        missing = [checksum for checksum in listed if checksums.compare(scratch / checksum.path, checksum)]
        with writing(stage_dir):
            scratch.mkdir(exist_ok=True)
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                list(pool.map(lambda checksum: self.fetch_file(address, digest, checksum, scratch / checksum.path), missing))
            artifacts.remove_scratch(scratch)
            artifacts.write_bytes(scratch / LIST_NAME, text)
            artifacts.write_bytes(scratch / MANIFEST_NAME, data)
            artifacts.sync_files(scratch, [checksum.path for checksum in listed])
            scratch.rename(stage_dir)
            artifacts.sync(stage_dir.parent)
            for left in stage_dir.parent.glob(f".pulling-{stage_dir.name}-*"):  # of other pushes, that were not finished
                shutil.rmtree(left, ignore_errors=True)
        return Transfer(len(missing), sum(checksum.bytes for checksum in missing), len(listed) - len(missing))


def _check_paths(listed: Sequence[Checksum]) -> None:
    """ValueError where an entry is none of a stage's own: whoever can write to the store has written it."""
    for checksum in listed:
        if not _PATH.fullmatch(checksum.path) or checksum.path in (MANIFEST_NAME, LIST_NAME):
            raise ValueError(f"{checksum.path!r} is no file of a stage")
        if checksum.bytes < 0 or not _HASH.fullmatch(checksum.sha256):
            raise ValueError(f"{checksum.path!r} has no size or hash")
    if len({checksum.path for checksum in listed}) != len(listed):
        raise ValueError("a file is in it twice")


def _name_manifest(address: str) -> str:
    return f"stages/{address}/{MANIFEST_NAME}"


def _name_folder(address: str, digest: str) -> str:
    return f"files/{address}/{digest}"
