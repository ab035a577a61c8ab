"""The journal of trajectories while a run goes on: whole Parquet files that appear one by one in its `folder`.

A file appears when it is whole, so a kill loses at most the rows of the last `flush_s` seconds and never
leaves half a file. The ids in `trajectories/` are the only truth about what has finished.
"""

import io
import re
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, TypeVarTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from drag_ray import schemas
from drag_ray.corpus.image_store import ImageStore, is_key
from drag_ray.errors import DataError
from drag_ray.rollout.folder import (
    BEGUN_DIR_NAME,
    CORRUPT_DIR_NAME,
    FAILURES_DIR_NAME,
    IMAGES_DIR_NAME,
    RESET_NAME,
    RUNNING_DIR_NAME,
    TRAJECTORIES_DIR_NAME,
)
from drag_ray.rollout.plan import find_bar, pick_wins
from drag_ray.storage import artifacts
from drag_ray.storage.file_access import create_mark, list_folder, reading, writing
from drag_ray.types import Trajectory

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")


class Keep(Protocol):
    """Calls a function where the folder of the run is."""

    def __call__(self, function: Callable[[*_Args], _Result], *args: *_Args) -> _Result:
        """Call the function there and give what it returns, or raises."""
        ...


def keep_here(function: Callable[[*_Args], _Result], *args: *_Args) -> _Result:
    """A `Keep` of a node that sees the folder."""
    return function(*args)


_SUFFIX = ".parquet"
_ENGINE_DIGITS = 8
"""of the 12 in the name of a file, which are the same in all that an engine writes"""
# Statistics repeat the longest texts in every page header, and a dictionary keeps zstd from seeing that the prompt of a turn
# begins with the prompt before it: without them the files of a run are a third smaller. Readers look at these alone.
# pyarrow's own annotation knows of no list.
_WITH_STATISTICS: Any = ["provenance.agent_fingerprint", "provenance.index_fingerprint"]
_LEVEL = 3
"""From here on zstd looks back as far as the prompt before one of 75,000 tokens; at pyarrow's 1 files grow by the square."""


def begin_attempt(run_dir: Path) -> None:
    """Make the folders, forget what an earlier attempt was at, and set aside files that are not what was written.

    The rollouts of a file that is set aside count as not finished and run again. Raises ArtifactError where the folder cannot be
    read or written.
    """
    with writing(run_dir):
        for name in (TRAJECTORIES_DIR_NAME, FAILURES_DIR_NAME, BEGUN_DIR_NAME, RUNNING_DIR_NAME):
            folder = run_dir / name
            folder.mkdir(parents=True, exist_ok=True)
            artifacts.remove_scratch(folder)  # of a process that was killed while it wrote
        if (run_dir / RESET_NAME).exists():
            for path in list_files(run_dir, FAILURES_DIR_NAME):
                path.unlink()
            (run_dir / RESET_NAME).unlink()
        for path in (*list_files(run_dir, TRAJECTORIES_DIR_NAME), *list_files(run_dir, FAILURES_DIR_NAME)):
            if not _is_whole(path):
                (run_dir / CORRUPT_DIR_NAME).mkdir(exist_ok=True)
                path.rename(run_dir / CORRUPT_DIR_NAME / path.name)
        forget_begun(run_dir)
        drop_repeated(run_dir)


def reset_failures(run_dir: Path) -> None:
    """Let the next attempt forget all failures: they had a cause that was not the rollouts'.

    They are not removed at once, because engines that are being stopped may still write some.
    """
    create_mark(run_dir / RESET_NAME)


def forget_begun(run_dir: Path) -> None:
    """Forget which chunks and rollouts are begun. That no rollout is running any more is for the caller to know."""
    for name in (BEGUN_DIR_NAME, RUNNING_DIR_NAME):
        for path in list_folder(run_dir / name):
            with writing(path):
                path.unlink()


def drop_repeated(run_dir: Path) -> None:
    """Keep one trajectory of each rollout.

    A rollout is run twice when an engine that was thought to be dead still writes: that of a driver which was killed a moment
    ago, or one on a node that had lost its connection.
    """
    seen: set[str] = set()
    paths = list_files(run_dir, TRAJECTORIES_DIR_NAME)
    with reading(run_dir):
        paths.sort(key=lambda path: path.stat().st_mtime_ns)
    for path in paths:
        ids = read_ids(path)
        is_new = [rollout_id not in seen for rollout_id in ids]
        seen.update(ids)
        if not all(is_new):
            _keep(path, is_new)


def drop(path: Path, ids: Collection[str]) -> None:
    """Take rollouts out of a file, so that they count as not finished. Raises ArtifactError where the file cannot be read or
    written."""
    _keep(path, [rollout_id not in ids for rollout_id in read_ids(path)])


def _keep(path: Path, is_kept: Sequence[bool]) -> None:
    """Write some rows of a file as another one, and remove it."""
    rest = schemas.read_table(path, schemas.TRAJECTORIES).filter(pa.array(is_kept))
    if rest.num_rows:
        _write(path.parent, rest, read_engine(path))
    with writing(path):
        path.unlink()


def list_files(run_dir: Path, name: str) -> list[Path]:
    """The whole files of one of the folders, in order of their names. Raises ArtifactError where the folder cannot be listed."""
    paths = list_folder(run_dir / name)
    return [path for path in paths if path.suffix == _SUFFIX and not path.name.startswith(".")]


def read_finished_ids(run_dir: Path) -> set[str]:
    """The ids of all rollouts that have finished and are on disk."""
    return {rollout_id for path in list_files(run_dir, TRAJECTORIES_DIR_NAME) for rollout_id in read_ids(path)}


def read_successes(run_dir: Path) -> dict[str, frozenset[str]]:
    """The successes (`plan.list_successes`) of every rollout that has finished and is on disk, by its id."""
    columns = ("id", "top_k", "question_rank", "question_hits.list.element.rank")
    successes: dict[str, frozenset[str]] = {}
    for path in list_files(run_dir, TRAJECTORIES_DIR_NAME):
        with reading(path):
            rows = schemas.read_columns(pq.ParquetFile(path), columns, ("query", "evidence_rank")).to_pylist()
        for row in rows:
            bar = find_bar(row["top_k"], bool(row["question_hits"]), row["question_rank"])
            successes[row["id"]] = pick_wins(((turn["query"], turn["evidence_rank"]) for turn in row["turns"]), bar)
    return successes


def read_finished(run_dir: Path, ids: Collection[str], engines: Collection[str]) -> list[Trajectory]:
    """The trajectories with these ids that have finished in these engines and are on disk, each once."""
    found: dict[str, Trajectory] = {}
    # With hundreds of engines there are thousands of files, and a node that is lost has hundreds of chunks taken over.
    for path in list_files(run_dir, TRAJECTORIES_DIR_NAME):
        if read_engine(path) in engines and not set(ids).isdisjoint(read_ids(path)):
            rows = schemas.read_table(path, schemas.TRAJECTORIES).filter(pc.field("id").isin(list(ids))).to_pylist()
            found |= {row["id"]: schemas.to_trajectory(row) for row in rows}
    return list(found.values())


def read_trajectories(run_dir: Path) -> pa.Table:
    """All finished trajectories of a run, in order of their ids. Raises DataError where a file cannot be read or is of another
    schema."""
    paths = list_files(run_dir, TRAJECTORIES_DIR_NAME)
    tables = [schemas.read_table(path, schemas.TRAJECTORIES) for path in paths]
    return pa.concat_tables(tables or [schemas.TRAJECTORIES.empty_table()]).sort_by("id")


def begin_chunk(run_dir: Path, chunk: int, engine: str) -> list[str]:
    """Note that an engine begins a chunk. Returns the engines that began it before in this attempt: they have died, and it is
    given out again. Raises ArtifactError where nothing can be written."""
    path = run_dir / BEGUN_DIR_NAME / str(chunk)
    with writing(path), path.open("a+") as mark:
        mark.seek(0)
        earlier = mark.read().split()
        mark.write(f"{engine}\n")
    return earlier


def begin_rollout(run_dir: Path, rollout_id: str) -> None:
    """Note that a rollout is being run. Raises ArtifactError where nothing can be written."""
    create_mark(_running_path(run_dir, rollout_id))


def end_rollout(run_dir: Path, rollout_id: str) -> bool:
    """Note that a rollout is not being run any more. True if it was."""
    path = _running_path(run_dir, rollout_id)
    with writing(path):
        was_running = path.exists()
        path.unlink(missing_ok=True)
    return was_running


def copy_policy(source_dir: Path, run_dir: Path, policy: str) -> None:
    """Copy the images of another run, and the trajectories of a policy, but for those in files that are not what was written."""
    ImageStore(run_dir / IMAGES_DIR_NAME).take_over(source_dir / IMAGES_DIR_NAME)
    for path in filter(_is_whole, list_files(source_dir, TRAJECTORIES_DIR_NAME)):
        rows = schemas.read_table(path, schemas.TRAJECTORIES).filter(pc.field("provenance", "policy") == policy)
        if rows.num_rows:
            _write(run_dir / TRAJECTORIES_DIR_NAME, rows, read_engine(path))


def read_engine(path: Path) -> str:
    """The engine that wrote a file, by its name."""
    return path.stem.partition("-")[2][:_ENGINE_DIGITS]


def _is_whole(path: Path) -> bool:
    """True if a file is what was written: its name says so."""
    with reading(path):
        return path.is_file() and path.stem.rpartition("-")[2] == artifacts.compute_file_fingerprint(path)


def _running_path(run_dir: Path, rollout_id: str) -> Path:
    return run_dir / RUNNING_DIR_NAME / artifacts.compute_fingerprint(rollout_id)


def read_ids(path: Path) -> list[str]:
    """The ids of a file's rollouts."""
    with reading(path):
        return pq.ParquetFile(path).read(columns=["id"])["id"].to_pylist()


def _write(folder: Path, table: pa.Table, engine: str) -> None:
    buffer = io.BytesIO()
    pq.write_table(
        table, buffer, compression="zstd", use_dictionary=False, write_statistics=_WITH_STATISTICS, compression_level=_LEVEL
    )
    data = buffer.getvalue()
    name = f"part-{engine}{uuid.uuid4().hex[: 12 - _ENGINE_DIGITS]}-{artifacts.compute_bytes_fingerprint(data)}{_SUFFIX}"
    artifacts.write_bytes(folder / name, data)


class Journal:
    """Writes the trajectories of one engine.

    Attributes:
        engine: its name, as `read_engine` finds it in those of its files.
    """

    def __init__(self, run_dir: Path, flush_s: float, keep: Keep = keep_here) -> None:
        self._run_dir = run_dir
        self._keep = keep
        self.engine = uuid.uuid4().hex[:_ENGINE_DIGITS]
        self._flush_s = flush_s
        self._rows: dict[str, list[Trajectory]] = {TRAJECTORIES_DIR_NAME: [], FAILURES_DIR_NAME: []}
        self._flushed_at = time.monotonic()

    def add(self, trajectory: Trajectory) -> None:
        """Take a trajectory; it is on disk at the latest after `flush_s` seconds in which others arrive, or at `flush`."""
        self._rows[FAILURES_DIR_NAME if trajectory.error else TRAJECTORIES_DIR_NAME].append(trajectory)
        if time.monotonic() - self._flushed_at >= self._flush_s:
            self.flush()

    def flush(self) -> None:
        """Write everything that is held. Raises ArtifactError where it cannot be written; nothing of it is dropped."""
        for name, rows in self._rows.items():
            if rows:
                self._keep(_write, self._run_dir / name, schemas.to_table(rows, schemas.TRAJECTORIES), self.engine)
                rows.clear()
        self._flushed_at = time.monotonic()


_SHOWN = re.compile(r'(?<!\\)"image": ?"([^"\\]{1,80})"')
"""An image part in a conversation that is JSON; within a text every quotation mark has a backslash before it."""


def drop_rollouts_without_images(run_dir: Path, image_dirs: Sequence[Path], *, shows_degraded: bool = False) -> int:
    """Set damaged images aside, and take out of the journal the rollouts that were shown an image which no store has.

    Only rollouts that have called a tool are looked at, or all where pictures of the index were made worse, and of their images
    those that lie in no store of the index: what is missing there the index stage makes again. Returns how many rollouts will run
    again. Raises ArtifactError where a file cannot be read, moved or written.

    Args:
        image_dirs: the stores of the index.
        shows_degraded: whether rollouts were shown such pictures.
    """
    is_there: dict[str, bool] = {}
    num_dropped = 0
    for path in list_files(run_dir, TRAJECTORIES_DIR_NAME):
        shown = _read_shown(path, of_all=shows_degraded)
        for key in {key for keys in shown.values() for key in keys} - is_there.keys():
            is_of_index = is_key(key) and any((root / key).is_file() for root in image_dirs)
            is_there[key] = _is_image_whole(run_dir, key) or is_of_index
        lost = [rollout_id for rollout_id, keys in shown.items() if not all(is_there[key] for key in keys)]
        if lost:
            drop(path, lost)
            num_dropped += len(lost)
    return num_dropped


def _read_shown(path: Path, *, of_all: bool) -> Mapping[str, frozenset[str]]:
    """The keys of the images that each rollout was shown which called a tool, or each one, by its id."""
    with reading(path):
        file = pq.ParquetFile(path)
        tools = schemas.read_columns(file, (), ("tool",))["turns"].to_pylist()
        has_called = [of_all or any(turn["tool"] for turn in turns) for turns in tools]
        if not any(has_called):
            return {}
        rows = file.read(columns=["id", "messages"]).filter(pa.array(has_called))
    return {row["id"]: frozenset(_SHOWN.findall(row["messages"])) for row in rows.to_pylist()}


def _is_image_whole(run_dir: Path, key: str) -> bool:
    """True if the rollouts' own store has an image as it was written. One that is damaged is moved away, or it would stay so."""
    store = ImageStore(run_dir / IMAGES_DIR_NAME)
    try:
        store.read(key)
    except DataError:
        damaged = store.root / key
        with writing(damaged):
            if is_key(key) and damaged.exists():
                (run_dir / CORRUPT_DIR_NAME).mkdir(exist_ok=True)
                damaged.rename(run_dir / CORRUPT_DIR_NAME / damaged.name)
        return False
    return True
