"""A disk that is full, broken or closed, and memory that is used up, at each access to files in turn."""

import io
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from factories import build_search, build_trajectory, write_trajectories
from file_layer import ERRORS, INJECTED, FileLayer, fail_each_access, limit_files
from pydantic import TypeAdapter

from drag_ray import schemas
from drag_ray.errors import ArtifactError, DragRayError, SearchIndexError
from drag_ray.format.row_parts import RowFiles, encode_rows
from drag_ray.process.config import ProcessConfig
from drag_ray.process.trajectories import read_records
from drag_ray.process.trajectory_parts import deal_out, process_part
from drag_ray.rollout import journal
from drag_ray.search import index
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.searcher import Searcher
from drag_ray.search.vectors import PageVectors, VectorsRecord, write_vectors
from drag_ray.stage_runs import damage
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts, checksums
from drag_ray.storage.appended_lines import append_line, read_lines
from drag_ray.storage.artifacts import Identity
from drag_ray.types import Page

pytestmark = pytest.mark.seconds

IDENTITY = Identity("format", {"value": 1}, {})
OTHER = Identity("format", {"value": 2}, {})
ROWS = pa.table({"prompt": [f"question {number}" for number in range(99)]})

every_error = pytest.mark.parametrize(
    ("error", "step"),
    [pytest.param(error, step, marks=[pytest.mark.slow] if step == 1 else []) for error in ERRORS for step in (1, 9)],
)
"""Each access, or each ninth where time counts."""


def run_stage(run_dir: Path, identity: Identity = IDENTITY) -> None:
    """A small stage that is skipped when it has finished."""
    with StageFolder(run_dir / "format", identity) as folder:
        if folder.is_finished():
            return
        artifacts.write_parquet(folder.path / "rows" / "part.parquet", pa.table({"a": list(range(100))}))
        artifacts.write_jsonl(folder.path / "rows.jsonl", [{"a": 1}])
        folder.finish({"rows": 100})


def check_stage(run_dir: Path) -> None:
    """A manifest that can be read is that of whole files."""
    folder = run_dir / "format"
    try:
        manifest = artifacts.read_manifest(folder)
    except DragRayError:
        return
    if manifest is not None:
        assert damage.find_damage(folder, whole=True) == []
        assert (folder / "rows" / "part.parquet").exists()


def read_stage(run_dir: Path) -> None:
    artifacts.require_manifest(run_dir / "format")
    damage.refuse_damage(run_dir / "format", whole=True)


def build(folder: Path) -> None:
    build_index(folder / "pages.parquet", folder / "index", SearchConfig())


def prepare_index(folder: Path) -> None:
    write_pages(folder, "rotor")
    build(folder)
    write_pages(folder, "spar")


def write_pages(folder: Path, word: str) -> None:
    pages = [Page(f"{number}.pdf", 1, 1, f"{word} {number}") for number in (2, 1)]
    artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))


def check_index(folder: Path) -> None:
    """An index that can be opened is whole, and that of the pages."""
    try:
        hits = Searcher(folder / "index").search("spar", 5)
    except SearchIndexError:
        return
    assert [hit.file for hit in hits] == ["1.pdf", "2.pdf"]
    listed = checksums.parse_list((folder / "index" / checksums.LIST_NAME).read_text())
    assert checksums.find_damage(folder / "index", listed, whole=True) == []


def embed_and_open(folder: Path) -> None:
    parts = [(np.array([0, 1]), np.array([[1, 0], [0, 1]])), (np.array([1]), np.array([[0.5, 0.5]]))]
    write_vectors(parts, folder / "vectors", VectorsRecord("0123456789abcdef", 3, 2, {}, [1, 0]))
    PageVectors(folder / "vectors", "0123456789abcdef")


def check_vectors(folder: Path) -> None:
    """Vectors that can be opened are whole, and those that were written last."""
    try:
        vectors = PageVectors(folder / "vectors", "0123456789abcdef")
    except SearchIndexError:
        return
    assert vectors.rank(np.array([1.0, 0.25], np.float32), 2) == [(1.0, 0), (0.625, 1)]


def collect(folder: Path) -> None:
    """Two rollouts that are run if they have not finished, as a collection does."""
    journal.begin_attempt(folder)
    done = journal.read_finished_ids(folder)
    written = journal.Journal(folder, flush_s=0)
    for rollout_id in {"a", "b"} - done:
        journal.begin_rollout(folder, rollout_id)
        written.add(build_trajectory(build_search("rotor speed", 1), id=rollout_id))
        journal.end_rollout(folder, rollout_id)
    written.flush()
    assert journal.read_trajectories(folder)["id"].to_pylist() == ["a", "b"]


def write_one_rollout(folder: Path) -> None:
    journal.begin_attempt(folder)
    written = journal.Journal(folder, flush_s=0)
    written.add(build_trajectory(build_search("rotor speed", 1), id="a"))
    written.flush()


def check_journal(folder: Path) -> None:
    rows = journal.read_trajectories(folder)["id"].to_pylist()
    assert set(rows) <= {"a", "b"}
    assert len(rows) == len(set(rows))


def append(folder: Path) -> None:
    number = len(read_lines(folder / "lines.jsonl", TypeAdapter(dict[str, object])))
    append_line(folder / "lines.jsonl", {"number": number, "text": "x" * 100})


def check_lines(folder: Path) -> None:
    numbers = [line["number"] for line in read_lines(folder / "lines.jsonl", TypeAdapter(dict[str, object]))]
    assert numbers == list(range(len(numbers)))


def into_new(write: Callable[[Path], object]) -> Callable[[Path], None]:
    """Prepare a new folder with the files that this writes into it."""

    def prepare(folder: Path) -> None:
        folder.mkdir()
        write(folder)

    return prepare


def write_index_of_spars(folder: Path) -> None:
    write_pages(folder, "spar")
    build(folder)


Act = Callable[[Path], object]
CASES: dict[str, tuple[Callable[[Path], None], Act, Callable[[Path], None]]] = {
    "a stage": (Path.mkdir, run_stage, check_stage),
    "a stage over the work of other options": (into_new(lambda folder: run_stage(folder, OTHER)), run_stage, check_stage),
    "a stage that is read": (into_new(run_stage), read_stage, check_stage),
    "an index that is built": (prepare_index, build, check_index),
    "an index that is opened": (write_index_of_spars, lambda folder: Searcher(folder / "index"), check_index),
    "an index's vectors": (Path.mkdir, embed_and_open, check_vectors),
    "a journal": (write_one_rollout, collect, check_journal),
    "lines that are appended": (into_new(append), append, check_lines),
}
"""What is there before, what is done, and what must hold after any failure of it."""


@every_error
@pytest.mark.parametrize("case", CASES)
def test_nothing_is_taken_for_whole_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, error: str, step: int
) -> None:
    prepare, act, check = CASES[case]
    num_accesses = fail_each_access(tmp_path, monkeypatch, error, prepare, act, check, step)
    assert case != "a stage" or num_accesses > 40


@pytest.mark.parametrize("write", [run_stage, prepare_index, collect], ids=["stage", "index", "journal"])
def test_the_layer_sees_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None]) -> None:
    layer = FileLayer(tmp_path, monkeypatch)
    write(tmp_path)
    kinds = {access.partition(" ")[0] for access in layer.accesses}
    assert {"os.fsync", "os.replace", "write"} <= kinds
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("part", ["write_pages", "build_tantivy"])
def test_an_index_whose_native_writers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    pages = [Page(f"{number}.pdf", 1, 1, " ".join(f"spar{number * word % 97}" for word in range(50))) for number in range(60)]
    artifacts.write_parquet(tmp_path / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    build(tmp_path)
    sizes = {path.stat().st_size for path in (tmp_path / "index").rglob("*") if path.is_file()}
    shutil.rmtree(tmp_path / "index")
    write = getattr(index, part)
    # The captured stderr is a file, limited too, and tqdm keeps its lock for ever when it cannot write its bar.
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    for num_bytes in (0, *(size - 1 for size in sorted(sizes))):
        refused: list[BaseException] = []

        def write_limited(*args: object, num_bytes: int = num_bytes, refused: list[BaseException] = refused) -> None:
            with limit_files(num_bytes):
                try:
                    write(*args)
                except BaseException as error:
                    refused.append(error)
                    raise

        monkeypatch.setattr(index, part, write_limited)
        INJECTED["no room for native code"] += 1
        with suppress(ArtifactError):
            build(tmp_path)
        assert (tmp_path / "index").exists() == (not refused)
        if num_bytes == 0:
            assert refused
        shutil.rmtree(tmp_path / "index", ignore_errors=True)
    monkeypatch.setattr(index, part, write)
    build(tmp_path)
    assert Searcher(tmp_path / "index").search("spar1", 1)


def deal(folder: Path) -> None:
    deal_out([folder.parent / "trajectories.parquet"], 2, folder / "dealt")


def process(folder: Path) -> None:
    process_part(read_records([folder.parent / "trajectories.parquet"]), 0, ProcessConfig(), folder)


def write_rows(folder: Path) -> None:
    with RowFiles(folder, "train", ROWS.schema) as files:
        files.write(encode_rows(ROWS), "part-0")


@pytest.mark.parametrize("write", [deal, process, write_rows])
def test_tables_whose_native_writers_are_refused(tmp_path: Path, write: Callable[[Path], None]) -> None:
    records = [build_trajectory(build_search(f"rotor {number}", 1), id=str(number)) for number in range(9)]
    write_trajectories(tmp_path / "trajectories.parquet", records)
    write(tmp_path / "sound")
    sizes = {path.relative_to(tmp_path / "sound"): path.stat().st_size for path in (tmp_path / "sound").rglob("*.*")}
    assert sizes
    for num_bytes in sorted({0, *(size - 1 for size in sizes.values())}):
        folder = tmp_path / str(num_bytes)
        INJECTED["no room for native code"] += 1
        with limit_files(num_bytes), pytest.raises(ArtifactError, match=rf"{folder}/.+: cannot be written .+ Free some space"):
            write(folder)
        if write is not deal:  # which starts anew when its stage is started again
            left = {path.relative_to(folder): path.stat().st_size for path in folder.rglob("*.*")}
            assert left.items() <= sizes.items()
