"""Damage of finished stages: how it is found, what readers of a stage are told, and how a change is accepted."""

import logging
from collections.abc import Collection, Iterator
from pathlib import Path

from drag_ray.errors import ArtifactError, DamageError
from drag_ray.storage import artifacts, checksums
from drag_ray.storage.artifacts import IDENTITY_NAME, MANIFEST_NAME, PREVIOUS_DIR_NAME, Manifest
from drag_ray.storage.checksums import LIST_NAME, Checksum, Damage
from drag_ray.storage.file_access import list_folder, reading

_logger = logging.getLogger(__name__)


def find_damage(stage_dir: Path, whole: bool = False, quick_folders: Collection[str] = ()) -> list[Damage]:
    """The files of a finished stage that are not what was written; none where the stage has not finished.

    Args:
        whole: look at every byte, not only at sizes and at small files.
        quick_folders: folders of the stage at which to look quickly all the same.
    """
    try:
        manifest = artifacts.read_manifest(stage_dir)
    except DamageError:
        return [Damage(MANIFEST_NAME, "is not what was written, or of an earlier version")]
    if manifest is None:
        return []
    listed = read_list(stage_dir, manifest)
    if listed is None:
        return [Damage(LIST_NAME, "is missing or was changed")]
    return checksums.find_damage(stage_dir, listed, whole, tuple(f"{name}/" for name in quick_folders))


def refuse_damage(stage_dir: Path, whole: bool = False, quick_folders: Collection[str] = ()) -> None:
    """Look at a finished stage before it is read (see `find_damage`). Raises DamageError: names the damaged files, what was found
    and expected, and what to run."""
    damage = find_damage(stage_dir, whole, quick_folders)
    if not damage:
        return
    raise DamageError(
        f"{stage_dir}: damaged: {checksums.describe_damage(damage)}. This does it again: {artifacts.read_command(stage_dir)}\n"
        f"If it was changed on purpose, this keeps it so: drag-ray verify {stage_dir} --accept"
    )


def list_finished(path: Path) -> list[Path]:
    """The finished stages of a run, or the one that `path` is. Raises ArtifactError where there is none, or a folder cannot be
    listed."""
    if (path / MANIFEST_NAME).exists():
        return [path]
    found = sorted(_walk_finished(path)) if path.is_dir() else []
    if not found:
        raise ArtifactError(f"{path}: neither a run with a finished stage nor a stage. Give a run's folder.")
    return found


def _walk_finished(folder: Path) -> Iterator[Path]:
    """The finished stages below a folder that is none, those that were set aside left out."""
    for path in list_folder(folder):
        if path.is_dir() and not path.name.startswith((".", PREVIOUS_DIR_NAME)):
            if (path / MANIFEST_NAME).exists():
                yield path
            elif not (path / IDENTITY_NAME).exists():
                yield from _walk_finished(path)


def verify_stage(stage_dir: Path) -> tuple[int, int]:
    """Compare every byte of a finished stage with what was written. Returns how many files and bytes there are. Raises
    DamageError: names the damaged files, what was found and expected, and what to run."""
    refuse_damage(stage_dir, whole=True)
    listed = read_list(stage_dir, artifacts.require_manifest(stage_dir)) or []
    return len(listed), sum(checksum.bytes for checksum in listed)


def verify_stages(path: Path) -> dict[str, tuple[int, int]]:
    """Compare every byte of the finished stages of a run, or of the one that `path` is, with what was written. Returns how many
    files and bytes each has, by its folder. Raises ArtifactError where there is no finished stage, or a folder cannot be listed;
    DamageError: names the damaged files of all stages, what was found and expected, and what to run."""
    sound: dict[str, tuple[int, int]] = {}
    problems: list[str] = []
    for stage_dir in list_finished(path):
        try:
            num_files, num_bytes = sound[str(stage_dir)] = verify_stage(stage_dir)
            _logger.info(f"{stage_dir}: {num_files} files, {num_bytes:,} bytes, as they were written")
        except DamageError as error:
            problems.append(str(error))
    if problems:
        raise DamageError("\n".join(problems))
    return sound


def accept_changes(stage_dir: Path) -> list[Damage]:
    """Take the files of a finished stage as they are now for what was written; stages that read it will run again. Returns what
    had changed. Raises ArtifactError where the stage has not finished, or its manifest or the list of its files are damaged
    themselves."""
    manifest = artifacts.require_manifest(stage_dir)
    listed = read_list(stage_dir, manifest)
    if listed is None:
        raise DamageError(f"{stage_dir / LIST_NAME}: is missing or was changed. Run: {manifest.command}")
    changes = checksums.find_damage(stage_dir, listed, whole=True)
    changed = {change.path for change in changes}
    there = [path for path in sorted(changed) if (stage_dir / path).is_file()]
    accepted = [checksum for checksum in listed if checksum.path not in changed]
    accepted += checksums.compute_checksums(stage_dir, there, trust_names=False)
    if changes:
        artifacts.write_list(stage_dir, manifest, sorted(accepted, key=lambda checksum: checksum.path), accept=True)
    return changes


def read_list(stage_dir: Path, manifest: Manifest) -> list[Checksum] | None:
    """The checksums of the files; None if the list is not the one that the manifest knows."""
    with reading(stage_dir / LIST_NAME):
        try:
            data = (stage_dir / LIST_NAME).read_bytes()
            return (
                checksums.parse_list(data.decode()) if artifacts.compute_bytes_fingerprint(data) == manifest.checksums else None
            )
        except (OSError, ValueError):
            return None
