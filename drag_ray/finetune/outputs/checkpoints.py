"""Checkpoints of a training: what makes one whole, and which of them it goes on from.

Ray Train would copy what each process has written into one folder, and then writes down that it is there. It never looks whether
it still is what was written, nor waits until it is on the disk, and transformers goes on without the state of an optimizer that
is missing, and says nothing. So each process writes on the disk that keeps checkpoints, moves its part to its place and seals it
once the disk has it, before Ray Train removes an earlier one, and training goes on from the last one whose seals are all there
and true.
"""

import contextlib
import re
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

from drag_ray.errors import ArtifactError
from drag_ray.storage import checksums
from drag_ray.storage.artifacts import compute_bytes_fingerprint, sync, sync_files, write_text
from drag_ray.storage.file_access import explain_memory, list_folder, reading, writing
from drag_ray.storage.json_text import parse_json

DIR_NAME = "checkpoints"
_SNAPSHOT_NAME = "checkpoint_manager_snapshot.json"
"""What Ray Train keeps of them: a file that is not written whole or not at all."""
_SCRATCH_NAME = ".written-"
STATE_NAME = "trainer_state.json"
_SEAL = re.compile(r"whole-(?P<rank>\d+)-of-(?P<number>\d+)-(?P<hash>[0-9a-f]{16})\.jsonl")
_CANNOT_WRITE = re.compile(r"\(os error \d+\)|inline_container|PytorchStreamWriter|iostream error")
"""How safetensors and tokenizers say that a disk refuses, and how torch does."""
_REMEDY = "Free some space or choose another --run-dir; started again, the stage goes on from its last checkpoint."


@contextlib.contextmanager
def open_scratch(checkpoints_dir: Path, rank: int) -> Generator[Path]:
    """A folder for what a training process writes until it is kept. What an earlier process of this rank has left is removed."""
    prefix = f"{_SCRATCH_NAME}{rank}-"
    with writing(checkpoints_dir):
        _remove_scratch(checkpoints_dir, prefix)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=checkpoints_dir))
    try:
        yield folder
    finally:
        with writing(checkpoints_dir):
            shutil.rmtree(folder, ignore_errors=True)


def _remove_scratch(checkpoints_dir: Path, prefix: str) -> None:
    for leftover in checkpoints_dir.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)  # of a process that still writes not all may go


def keep(written_dir: Path, folder: Path, rank: int, num_workers: int) -> None:
    """Move the part of a checkpoint that one of the training processes has written to its place, bring it to the disk, and then
    write down what it is. Raises ArtifactError where the disk refuses."""
    with reading(written_dir):
        listed = checksums.compute_checksums(written_dir, checksums.list_files(written_dir), trust_names=False)
    with writing(folder):
        folder.mkdir(exist_ok=True)
        for checksum in listed:
            (folder / checksum.path).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(written_dir / checksum.path, folder / checksum.path)
        sync_files(folder, [checksum.path for checksum in listed])
        sync(folder.parent)
    text = checksums.format_list(listed)
    write_text(folder / f"whole-{rank}-of-{num_workers}-{compute_bytes_fingerprint(text.encode())}.jsonl", text)


def find_last(checkpoints_dir: Path) -> tuple[Path | None, list[str]]:
    """The folder of the last whole checkpoint, None without one; and of later ones what is wrong with each. Raises ArtifactError
    where the folder cannot be listed."""
    flaws: list[str] = []
    for folder in sorted(_list_checkpoints(checkpoints_dir), key=lambda folder: (read_step(folder), folder.name), reverse=True):
        flaw = find_flaw(folder)
        if not flaw:
            return folder, flaws
        flaws.append(f"{folder}: {flaw}")
    return None, flaws


def find_flaw(folder: Path) -> str:
    """The damage of a checkpoint in words; empty where all is."""
    seals = [found for path in list_folder(folder) if (found := _SEAL.fullmatch(path.name))]
    if not seals or sorted(int(found["rank"]) for found in seals) != list(range(int(seals[0]["number"]))):
        return "was not written to its end"
    for found in seals:
        with reading(folder / found[0]):
            try:
                data = (folder / found[0]).read_bytes()
            except OSError as error:
                return f"{found[0]}: cannot be read ({error.strerror or error})"
        if compute_bytes_fingerprint(data) != found["hash"]:
            return f"{found[0]}: holds other bytes than were written"
        damage = checksums.find_damage(folder, checksums.parse_list(data.decode()), whole=True)
        if damage:
            return checksums.describe_damage(damage)
    return ""


def read_step(folder: Path) -> int:
    """The step after which a checkpoint was written; -1 where it does not say."""
    return _read_state(folder, "global_step")


def is_finished(folder: Path) -> bool:
    """True for the checkpoint of a training's last step."""
    return 0 <= _read_state(folder, "max_steps") <= read_step(folder)


def _read_state(folder: Path, name: str) -> int:
    with reading(folder / STATE_NAME):
        try:
            return int(parse_json((folder / STATE_NAME).read_text(encoding="utf-8"))[name])
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            return -1


def clear_unfinished(checkpoints_dir: Path) -> None:
    """Remove what a training that was killed, or met a full disk, has left behind: folders without a seal; those up to the last
    whole one that Ray Train has not noted and would keep for good; and its own file where it was written in part or names what
    is gone, for Ray would not start then. Raises ArtifactError where the folder cannot be read or written."""
    with writing(checkpoints_dir):
        _remove_scratch(checkpoints_dir, _SCRATCH_NAME)
        for folder in _list_checkpoints(checkpoints_dir):
            if not any(_SEAL.fullmatch(path.name) for path in list_folder(folder)):
                shutil.rmtree(folder)
        known = _read_known(checkpoints_dir / _SNAPSHOT_NAME)
        if not known:
            (checkpoints_dir / _SNAPSHOT_NAME).unlink(missing_ok=True)
        unknown = [folder for folder in _list_checkpoints(checkpoints_dir) if known and folder.name not in known]
        last = find_last(checkpoints_dir)[0] if unknown else None
        for folder in unknown:
            if last and folder != last and read_step(folder) <= read_step(last):
                shutil.rmtree(folder)


def _read_known(snapshot: Path) -> list[str]:
    """The names of the checkpoints that Ray Train has noted; none where it cannot go on with them."""
    if not snapshot.exists():
        return []
    with reading(snapshot):
        data = snapshot.read_bytes()
    try:
        names = [str(result["checkpoint_dir_name"]) for result in parse_json(data)["checkpoint_results"]]
    except (ValueError, KeyError, TypeError):
        return []
    return names if all((snapshot.parent / name).is_dir() for name in names) else []


def _list_checkpoints(checkpoints_dir: Path) -> list[Path]:
    return [path for path in list_folder(checkpoints_dir) if path.name.startswith("checkpoint_") and path.is_dir()]


@contextlib.contextmanager
def saving(folder: Path, remedy: str = _REMEDY) -> Generator[None]:
    """Turn what a disk refuses to libraries that write weights into an ArtifactError that names the folder and says what to do.

    They say it with errors of kinds of their own, some of them with a bare `Exception`.
    """
    try:
        yield
    except MemoryError as error:
        raise ArtifactError(f"{folder}: cannot be written: {explain_memory(error)}") from error
    except Exception as error:
        if not isinstance(error, OSError) and not _CANNOT_WRITE.search(str(error)):
            raise
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise ArtifactError(f"{folder}: cannot be written ({reason}). {remedy}") from error
