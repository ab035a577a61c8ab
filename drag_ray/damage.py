"""What of a finished stage is not as it was written: how it is found, what its readers are told, and how a change is accepted."""

from collections.abc import Collection, Iterator
from pathlib import Path

from drag_ray import artifacts, checksums
from drag_ray.artifacts import IDENTITY_NAME, MANIFEST_NAME, PREVIOUS_DIR_NAME, Manifest
from drag_ray.checksums import LIST_NAME, Checksum, Damage
from drag_ray.errors import ArtifactError, DamageError
from drag_ray.file_access import list_folder


def find_damage(stage_dir: Path, whole: bool = False, but: Collection[str] = ()) -> list[Damage]:
    """The files of a finished stage that are not what was written; none where the stage has not finished.

    Args:
        whole: look at every byte, not only at sizes and samples.
        but: folders of the stage at which to look quickly all the same.
    """
    try:
        manifest = artifacts.read_manifest(stage_dir)
    except DamageError:
        return [Damage(MANIFEST_NAME, "is not what was written, or of an earlier version")]
    if manifest is None:
        return []
    listed = read_list(stage_dir, manifest)
    if listed is None:
        return [Damage(LIST_NAME, "is missing or not what was written")]
    return checksums.find_damage(stage_dir, listed, whole, tuple(f"{name}/" for name in but))


def refuse_damage(stage_dir: Path, whole: bool = False, but: Collection[str] = ()) -> None:
    """Look at a finished stage before it is read (see `find_damage`).

    Raises:
        DamageError: names the damaged files, what was found and expected, and what to run.
    """
    damage = find_damage(stage_dir, whole, but)
    if not damage:
        return
    raise DamageError(
        f"{stage_dir}: damaged: {checksums.describe_damage(damage)}. This does it again: {artifacts.read_command(stage_dir)}\n"
        f"If it was changed on purpose, this keeps it so: drag-ray verify {stage_dir} --accept"
    )


def list_finished(path: Path) -> list[Path]:
    """The finished stages of a run, or the one that `path` is.

    Raises:
        ArtifactError: there is none, or a folder cannot be listed.
    """
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
    """Compare every byte of a finished stage with what was written.

    Returns:
        How many files and bytes there are.

    Raises:
        DamageError: names the damaged files, what was found and expected, and what to run.
    """
    refuse_damage(stage_dir, whole=True)
    listed = read_list(stage_dir, artifacts.require_manifest(stage_dir)) or []
    return len(listed), sum(checksum.bytes for checksum in listed)


def accept_changes(stage_dir: Path) -> list[Damage]:
    """Take the files of a finished stage as they are now for what was written; stages that read it will run again.

    Returns:
        What had changed.

    Raises:
        ArtifactError: the stage has not finished, or its manifest or the list of its files are damaged themselves.
    """
    manifest = artifacts.require_manifest(stage_dir)
    listed = read_list(stage_dir, manifest)
    if listed is None:
        raise DamageError(f"{stage_dir / LIST_NAME}: is missing or not what was written. Run: {manifest.command}")
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
    try:
        data = (stage_dir / LIST_NAME).read_bytes()
        return checksums.parse_list(data.decode()) if artifacts.compute_bytes_fingerprint(data) == manifest.checksums else None
    except (OSError, ValueError):
        return None
