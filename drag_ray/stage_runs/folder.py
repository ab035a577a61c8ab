"""A stage's folder while the stage runs: one writer at a time, what is found there, and the manifest at the end."""

import contextlib
import fcntl
import itertools
import logging
import shutil
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

from drag_ray.errors import ArtifactError, DamageError
from drag_ray.storage import checksums
from drag_ray.storage.artifacts import (
    IDENTITY_NAME,
    MANIFEST_NAME,
    PREVIOUS_DIR_NAME,
    Identity,
    Manifest,
    read_identity,
    read_manifest,
    remove_scratch,
    require_manifest,
    sync,
    write_json,
    write_list,
)
from drag_ray.storage.checksums import Checksum, Damage, describe_damage
from drag_ray.storage.file_access import make_private, writing

_logger = logging.getLogger(__name__)

_LOCK_NAME = ".lock"


class StageFolder:
    """A stage's folder while the stage runs. Use it as a context manager.

    Entering takes the folder's lock and settles what is found there: unfinished work of the same identity
    is kept (`resumed` is True) and loses its manifest, anything else is moved to `_previous/` beside it, never deleted.
    `finish` writes the manifest; leaving without it leaves the folder unfinished. Where the work before is to stay of use until
    then, it is done in a hidden folder beside it, which takes its place at the end.

    Args:
        damage: what of the finished folder is not as it was written (see `damage`); it is done again.
        repairs_in_place: the stage does again what is missing from its folder, so that only the damaged files are moved away.
        keeps_earlier: finished work of another identity stays in its place until this is finished.

    Attributes:
        path: where the stage writes.
        known: checksums of its files that need not be read again, from who has written them.
        earlier: the finished work that stays in its place until then, undamaged; None where there is none.
    """

    def __init__(
        self,
        path: Path,
        identity: Identity,
        damage: Sequence[Damage] = (),
        repairs_in_place: bool = False,
        keeps_earlier: bool = False,
    ) -> None:
        self.path = self._place = path
        self.identity = identity
        self.resumed = False
        self.known: list[Checksum] = []
        self._lock: Any = None
        self._damage = damage
        self._repairs_in_place = repairs_in_place
        self._started = 0.0
        next_dir = path.with_name(f".{path.name}.next")
        if keeps_earlier:
            self._end_exchange(next_dir)
        earlier = read_manifest(path) if keeps_earlier and not self._damage else None
        replaces = earlier is not None and earlier.fingerprint != identity.fingerprint
        self.path = next_dir if replaces else path
        self.earlier = path if replaces else None

    def is_finished(self) -> bool:
        """True if the folder already holds the finished work of this very identity, undamaged, with nothing left to try again."""
        manifest = None if self._damage else read_manifest(self._place)
        if manifest is None or manifest.fingerprint != self.identity.fingerprint:
            return False
        return manifest.is_settled(self.identity.max_tries)

    def __enter__(self) -> "StageFolder":
        self._started = time.monotonic()
        depth = len(PurePath(self.identity.address or self.identity.stage).parts)
        with writing(self.path):
            make_private(self.path.parents[depth - 1])  # the run's
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self._settle()
        return self

    def _settle(self) -> None:
        found = self._read_fingerprint()
        is_own = found == self.identity.fingerprint
        self.resumed = is_own and not self.is_finished() and (self._repairs_in_place or not self._damage)
        if self.resumed:
            # Each step is on the disk before the next: without power in between, damage would come back that nothing knows of, or
            # a manifest beside new files.
            self._set_damaged_aside()
            (self.path / MANIFEST_NAME).unlink(missing_ok=True)
            sync(self.path)
            remove_scratch(self.path)
        elif self.path.exists() and any(self.path.iterdir()):
            self._set_aside(found, is_own)
        self.path.mkdir(exist_ok=True)
        write_json(self.path / IDENTITY_NAME, self.identity.to_dict())

    def __exit__(self, *exception: object) -> None:
        self._lock.close()
        self._lock = None

    def finish(
        self,
        counts: dict[str, Any],
        leave_out: Collection[str] = (),
        spent: dict[str, float] | None = None,
        listed_folders: Collection[str] = (),
    ) -> Manifest:
        """Write the list of the files and the manifest, the last act of a stage. `listed_folders`: those with a list of their own
        that the stage has just written."""
        own = self.identity.to_dict()
        manifest = Manifest(
            **{name: own.pop(name) for name in ("stage", "fingerprint", "max_tries", "command")},
            counts=counts,
            spent=spent or {},
            duration_s=round(time.monotonic() - self._started, 2),
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
            origin=own,
        )
        with writing(self.path):
            files = checksums.list_files(self.path, leave_out)
            paths = [path for path in files if path not in (MANIFEST_NAME, checksums.LIST_NAME)]
            known = [*self.known, *checksums.read_inner(self.path, paths, listed_folders)]
            write_list(self.path, manifest, checksums.compute_checksums(self.path, paths, known=known))
            if self.path != self._place:
                self._give_place(self.path)
        return require_manifest(self.path)

    def _give_place(self, next_dir: Path) -> None:
        self.path = self._place
        if self.path.exists():
            self._set_aside(self._read_fingerprint(), is_own=False)
        next_dir.rename(self.path)
        sync(self.path.parent)

    def _end_exchange(self, next_dir: Path) -> None:
        """Give its place to work that was killed when it was finished."""
        with contextlib.suppress(DamageError):
            if not read_manifest(next_dir) or self.is_finished():
                return
            with writing(next_dir):
                self._take_lock()
                with self._lock:
                    if next_dir.exists():  # no other start was faster
                        self._give_place(next_dir)
                        self._damage = ()

    def _take_lock(self) -> None:
        """One of the place, wherever the work is done."""
        lock_path = self._place.parent / f"{_LOCK_NAME}-{self._place.name}"
        self._lock = lock_path.open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise ArtifactError(
                f"{self.path}: another run is writing this folder. Wait for it, stop it, or choose another --run-dir."
            ) from None

    def _read_fingerprint(self) -> str | None:
        """Fingerprint of the folder, by its manifest or, without a sound one, its identity; None if neither can tell."""
        with contextlib.suppress(DamageError):
            manifest = read_manifest(self.path)
            if manifest:
                return manifest.fingerprint
        return read_identity(self.path).get("fingerprint")

    def _set_aside(self, found: str | None, is_own: bool) -> None:
        target = self._name_previous(found)
        target.parent.mkdir(exist_ok=True)
        shutil.move(self.path, target)
        if is_own and self._damage:
            self._say_damaged(f"moved to {target}")
            return
        if is_own:
            reason = "is finished, and done anew"
        else:
            reason = "holds the work of other inputs, options or version" if found else f"has no {IDENTITY_NAME} that can be read"
        _logger.info(f"{self.path}: {reason}; moved to {target}")

    def _set_damaged_aside(self) -> None:
        if not self._damage:
            return
        target = self._name_previous(self.identity.fingerprint)
        for path in (damage.path for damage in self._damage):
            if (self.path / path).exists():
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.move(self.path / path, target / path)
                sync((self.path / path).parent)
        self._say_damaged(f"what there is of it is moved to {target}, and done again")

    def _say_damaged(self, outcome: str) -> None:
        advice = f"What was changed on purpose is kept if it is copied back and accepted: drag-ray verify {self.path} --accept"
        _logger.warning(f"{self.path}: damaged ({describe_damage(self._damage)}); {outcome}. {advice}")

    def _name_previous(self, found: str | None) -> Path:
        name = f"{self.path.name}-{found or 'unknown'}-{time.strftime('%Y%m%d-%H%M%S')}"
        later = (f"{name}-{number}" for number in itertools.count(2))  # several runs may end within a second
        previous_dir = self.path.parent / PREVIOUS_DIR_NAME
        return next(path for path in map(previous_dir.joinpath, itertools.chain([name], later)) if not path.exists())
