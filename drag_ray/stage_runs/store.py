"""Finished stages of a run in an object store: sent with the manifest last, fetched whole or not at all.

    URI/stages/<address>/manifest.json             the stage that stands there now
    URI/stages/<address>/manifests/<outcome>.json  each that ever stood there
    URI/lists/<digest>.jsonl                       the list of its files (see `checksums`), which the manifest names by its hash
    URI/objects/<aa>/<hash>-<bytes>                their bytes

An object is named by what it holds and never changed, so a file that is there is not sent again, a push that was interrupted goes
on, and pushes that run at the same time do not mix: a manifest names a list, and the list objects, that were there before it.
"""

import itertools
import logging
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

from drag_ray.errors import ArtifactError, ConfigError, DamageError, StorageError
from drag_ray.stage_runs.address import is_name
from drag_ray.stage_runs.damage import list_finished, read_list, refuse_damage
from drag_ray.storage import artifacts, checksums
from drag_ray.storage.artifacts import MANIFEST_NAME, Manifest, is_begun
from drag_ray.storage.checksums import LIST_NAME, Checksum
from drag_ray.storage.file_access import make_private, writing
from drag_ray.storage.object_store import ObjectStore, StorageConfig

_logger = logging.getLogger(__name__)

_LISTED_AT_ONCE = 1000
"""files from which on the store is asked what it has, and not for each of them"""
_HASH = re.compile(r"[0-9a-f]{16,64}")

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Transfer:
    """What a push or a pull has moved: files and bytes, and how many files were there already."""

    num_files: int
    num_bytes: int
    num_there: int

    def __str__(self) -> str:
        return f"{self.num_files:,} files, {self.num_bytes:,} bytes; {self.num_there:,} files were there"


@dataclass(frozen=True)
class StoredStage:
    """A finished stage of a run that a store has too.

    Attributes:
        folder: in the run.
        address: where in the run that is.
        outcome: the fingerprint of its outcome.
        storage: where it lies; `uri` is not empty.
    """

    folder: Path
    address: str
    outcome: str
    storage: StorageConfig


class StageStore:
    """The finished stages that lie at a URI.

    Args:
        config: `uri` is not empty.

    Raises:
        ConfigError: the URI is none.
        StorageError: the store does not answer.
    """

    def __init__(self, config: StorageConfig) -> None:
        self._objects = ObjectStore(config.uri)
        self._num_connections = config.connections

    def list_addresses(self) -> list[str]:
        """Where in the run the stages are that lie here."""
        keys = (key.split("/") for key in self._objects.list_sizes("stages"))
        return sorted("/".join(parts[1:-1]) for parts in keys if parts[-1] == MANIFEST_NAME and all(map(is_name, parts[1:-1])))

    def read_manifest(self, address: str) -> Manifest | None:
        """The manifest of a stage, None where none was pushed.

        Raises:
            DamageError: it is there, and is not what was written.
            StorageError: the address is none.
        """
        if not all(map(is_name, address.split("/"))):
            raise StorageError(f"{self._objects.uri}: {address!r} is no stage of a run, as collect or finetune/dpo.")
        return self._read_manifest(_name_manifest(address), address)

    def _read_manifest(self, key: str, address: str) -> Manifest | None:
        data = self._objects.read(key)
        if data is None:
            return None
        try:
            manifest = artifacts.parse_manifest(data)
            if manifest.stage != address or not _HASH.fullmatch(manifest.checksums):
                raise ValueError(f"it is that of {manifest.stage!r}")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            place = f"{self._objects.uri}/{key}"
            raise DamageError(f"{place}: not a manifest ({error}). Push the stage again from where it is whole.") from None
        return manifest

    def push(self, run_dir: Path, address: str) -> Transfer | None:
        """Send a finished stage, the manifest last. None if it is there as it is here.

        Raises:
            ArtifactError: it has not finished, or its files are not what was written.
            StorageError: the store refuses; what was sent is kept, and not sent again.
        """
        stage_dir = run_dir / address
        manifest = artifacts.require_manifest(stage_dir)
        if self._find_manifest(address) == manifest:
            return None
        refuse_damage(stage_dir)
        listed = read_list(stage_dir, manifest) or []
        wanted = {_name_object(checksum): checksum for checksum in listed}
        there = self._measure(wanted)
        missing = {key: checksum for key, checksum in wanted.items() if there.get(key) != checksum.bytes}
        self._run_each(lambda item: self._objects.send(stage_dir / item[1].path, item[0], item[1].sha256), missing.items())
        self._objects.write(_name_list(manifest), (stage_dir / LIST_NAME).read_bytes())
        text = (stage_dir / MANIFEST_NAME).read_bytes()
        self._objects.write(_name_outcome(address, manifest.outcome_fingerprint), text)
        self._objects.write(_name_manifest(address), text)
        return Transfer(len(missing), sum(checksum.bytes for checksum in missing.values()), len(wanted) - len(missing))

    def pull(self, address: str, run_dir: Path) -> Transfer | None:
        """Fetch a stage into a run's folder, which then has all of it, or none. None if it is there already.

        Raises:
            ArtifactError: the run has a stage of other work, or an unfinished one, there.
            StorageError: none was pushed, or the store refuses; what was fetched is kept, and not fetched again.
            DamageError: it is not what was pushed.
        """
        from filelock import FileLock

        manifest = self.read_manifest(address)
        if manifest is None:
            raise StorageError(
                f"{self._objects.uri}: no finished stage {address}. It has {', '.join(self.list_addresses()) or 'none'}."
            )
        stage_dir = make_private(run_dir) / address
        with writing(stage_dir):
            stage_dir.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(stage_dir.parent / f".pulling-{stage_dir.name}.lock"):
            if is_begun(stage_dir):
                if artifacts.read_manifest(stage_dir) == manifest:
                    return None
                raise ArtifactError(
                    f"{stage_dir}: holds other work than {self._objects.uri}. Choose another run, or move it away."
                )
            return self._fetch_stage(manifest, stage_dir)

    def pull_lineage(self, address: str, run_dir: Path) -> Iterator[tuple[str, Transfer]]:
        """Fetch a stage, and the stages that it was made from, as far as they are here and the run has nothing in their places.

        Errors are those of `pull`.
        """
        manifest = self.read_manifest(address)
        if manifest is None:
            return
        if not is_begun(run_dir / address):
            transfer = self.pull(address, run_dir)
            if transfer:
                yield address, transfer
        for name, read in manifest.origin.get("reads", {}).items():
            ancestor = self.read_manifest(read)
            if ancestor and ancestor.outcome_fingerprint == manifest.origin["inputs"].get(name):
                yield from self.pull_lineage(read, run_dir)

    def fetch(self, address: str, outcome: str, folder: Path, but: Collection[str] = ()) -> Path:
        """A stage as it was with this outcome, in a folder of this machine, whoever asks first fetches it while others wait.

        Args:
            outcome: the fingerprint of its outcome.
            folder: on the machine's own disk; made if it is not there. Nothing in it is removed.
            but: folders of the stage that are left where they are.

        Raises:
            StorageError: it was not pushed, or the store refuses.
            DamageError: it is not what was pushed.
            ArtifactError: the disk refuses.
        """
        from filelock import FileLock

        stage_dir = folder / outcome / address
        with writing(stage_dir):
            stage_dir.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(stage_dir.parent / f".pulling-{stage_dir.name}.lock"):
            if not stage_dir.is_dir():
                manifest = self._read_manifest(_name_outcome(address, outcome), address)
                if manifest is None:
                    raise StorageError(
                        f"{self._objects.uri}: no stage {address} with the outcome {outcome}, which the run has. "
                        f"Run: drag-ray push RUN {self._objects.uri}"
                    )
                self._fetch_stage(manifest, stage_dir, but)
        return stage_dir

    def fetch_file(self, checksum: Checksum, path: Path) -> None:
        """One file of a stage that was pushed; it is whole or absent. Errors are those of `ObjectStore.fetch`."""
        self._objects.fetch(_name_object(checksum), path, checksum.bytes, checksum.sha256)

    def _find_manifest(self, address: str) -> Manifest | None:
        """The manifest of a stage; one that is not what was written counts for nothing, and is written again."""
        try:
            return self.read_manifest(address)
        except DamageError:
            return None

    def _measure(self, keys: Iterable[str]) -> Mapping[str, int | None]:
        keys = list(keys)
        if len(keys) > _LISTED_AT_ONCE:
            return self._objects.list_sizes("objects")
        return dict(zip(keys, self._run_each(self._objects.measure, keys), strict=True))

    def _run_each(self, function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
        """The results for each item, computed at the same time; after an error no further one is begun."""
        with ThreadPoolExecutor(self._num_connections) as pool:
            try:
                return list(pool.map(function, items))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _fetch_stage(self, manifest: Manifest, stage_dir: Path, but: Collection[str] = ()) -> Transfer:
        """Files come into a hidden folder, which becomes the stage's when it is whole and on the disk."""
        scratch = stage_dir.parent / f".pulling-{stage_dir.name}-{manifest.checksums}"
        text, listed = self._read_list(manifest)
        listed = [checksum for checksum in listed if checksum.path.partition("/")[0] not in but]
        missing = [damage.path for damage in checksums.find_damage(scratch, listed, whole=True)]
        by_path = {checksum.path: checksum for checksum in listed}

        with writing(stage_dir):
            scratch.mkdir(exist_ok=True)
            self._run_each(lambda path: self.fetch_file(by_path[path], scratch / path), missing)
            artifacts.remove_scratch(scratch)
            artifacts.write_bytes(scratch / LIST_NAME, text)
            artifacts.write_manifest(scratch, manifest)
            artifacts.sync_files(scratch, by_path)
            scratch.rename(stage_dir)
            artifacts.sync(stage_dir.parent)
            for left in stage_dir.parent.glob(f".pulling-{stage_dir.name}-*"):  # of other pushes, that were not finished
                shutil.rmtree(left, ignore_errors=True)
        return Transfer(len(missing), sum(by_path[path].bytes for path in missing), len(listed) - len(missing))

    def _read_list(self, manifest: Manifest) -> tuple[bytes, list[Checksum]]:
        """The list of a stage's files, none of which leads out of its folder."""
        key = _name_list(manifest)
        data = self._objects.read(key)
        if data is None or artifacts.compute_bytes_fingerprint(data) != manifest.checksums:
            raise DamageError(f"{self._objects.uri}/{key}: is missing or not what was written. Push the stage again.")
        try:
            listed = checksums.parse_list(data.decode())
            _check_paths(listed)
        except (ValueError, TypeError) as error:
            raise DamageError(f"{self._objects.uri}/{key}: not a list of files ({error}). Push the stage again.") from None
        return data, listed


def push_run(run_dir: Path, config: StorageConfig) -> dict[str, Transfer | None]:
    """Send the finished stages of a run.

    Returns:
        What was moved of each by its address; None where it was there.

    Raises:
        ConfigError: the folder is that of a stage.
        ArtifactError: no stage has finished; otherwise as `StageStore.push`.
    """
    store, moved = StageStore(config), dict[str, Transfer | None]()
    for stage_dir in list_finished(run_dir):
        address = artifacts.require_manifest(stage_dir).stage
        if run_dir / address != stage_dir:
            raise ConfigError(f"{run_dir}: {stage_dir} is the stage {address} of a run. Give the run's folder.")
        moved[address] = store.push(run_dir, address)
        _logger.info(f"{address}: {moved[address] or 'is there'}")
    return moved


def pull_run(config: StorageConfig, run_dir: Path, addresses: Sequence[str] = ()) -> dict[str, Transfer | None]:
    """Fetch finished stages into the folder of a run, with what they were made from; all that are there where none are named.

    Returns:
        What was moved of each by its address; None where it was there.

    Raises:
        StorageError: no stage lies there; otherwise as `StageStore.pull`.
    """
    store, moved = StageStore(config), dict[str, Transfer | None]()
    there = store.list_addresses()
    if not there:
        raise StorageError(f"{config.uri}: no finished stage lies there. Give the URI that a run was pushed to.")
    for address in addresses or there:
        own = [(address, store.pull(address, run_dir))] if address not in moved else []
        for pulled, transfer in itertools.chain(own, store.pull_lineage(address, run_dir)):
            moved[pulled] = transfer
            _logger.info(f"{pulled}: {transfer or 'is there'}")
    return moved


def _check_paths(listed: Sequence[Checksum]) -> None:
    """ValueError where an entry is none of a stage's own: whoever can write to the store has written it."""
    for checksum in listed:
        parts = PurePosixPath(checksum.path).parts
        is_own = parts and "/".join(parts) == checksum.path and not any(part[0] in "./" or "\0" in part for part in parts)
        if not is_own or checksum.path in (MANIFEST_NAME, LIST_NAME):
            raise ValueError(f"{checksum.path!r} is no file of a stage")
        if checksum.bytes < 0 or not _HASH.fullmatch(checksum.sha256):
            raise ValueError(f"{checksum.path!r} has no size or hash")
    if len({checksum.path for checksum in listed}) != len(listed):
        raise ValueError("a file is in it twice")


def _name_manifest(address: str) -> str:
    return f"stages/{address}/{MANIFEST_NAME}"


def _name_outcome(address: str, outcome: str) -> str:
    return f"stages/{address}/manifests/{outcome}.json"


def _name_list(manifest: Manifest) -> str:
    return f"lists/{manifest.checksums}.jsonl"


def _name_object(checksum: Checksum) -> str:
    return f"objects/{checksum.sha256[:2]}/{checksum.sha256}-{checksum.bytes}"
