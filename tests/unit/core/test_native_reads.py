"""Reads of Arrow, Polars, numpy and Tantivy by themselves, from files that are gone, cut, closed or on a disk that fails.

The faults are real ones, which the kernel hands to native code: a file layer in Python would not see these reads.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from factories import build_page, build_question, build_search, build_trajectory
from file_layer import INJECTED
from small_index import write_index

from drag_ray import schemas
from drag_ray.baselines.passages import read_examples
from drag_ray.corpus.readers import document_parts
from drag_ray.corpus.readers.documents import Span
from drag_ray.errors import DragRayError
from drag_ray.format.split import read_side
from drag_ray.format.tables import read_part
from drag_ray.index import vector_parts
from drag_ray.index.kept_documents import KeptDocuments
from drag_ray.process.config import ProcessConfig
from drag_ray.process.exchange import _read_all
from drag_ray.process.trajectories import check_files, check_settings, read_records
from drag_ray.process.trajectory_parts import deal_out, part_name, process_part, read_dealt
from drag_ray.rollout import journal
from drag_ray.rollout.counts import count_files
from drag_ray.rollout.failures import read_failures
from drag_ray.rollout.journal import drop_rollouts_without_images
from drag_ray.search import ranker, vectors
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index, read_record
from drag_ray.search.page_table import map_texts
from drag_ray.search.searcher import Searcher
from drag_ray.search.vectors import PageVectors, VectorsRecord, write_vectors
from drag_ray.storage.artifacts import write_parquet
from drag_ray.transcripts.listing import read_listing
from drag_ray.transcripts.thumbnails import ThumbnailStore
from drag_ray.types import Evidence

pytestmark = pytest.mark.seconds

NOBODY = 65_534
INDEX = "0123456789abcdef"
PART = f"{part_name(0)}.parquet"
PAGES = [build_page(file=f"{number}.pdf", page_number=1, text=f"rotor {number}", image=f"{number}.jpg") for number in (2, 1)]
REMEDY = re.compile(r"Run: |Run the stage|Remove it|Check its permissions|drag-ray verify|jobs/index\.py --verify")


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """The folder of a run's stages, which everybody may enter."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_index(folder / "index", PAGES, [build_question(evidence=(Evidence("1.pdf", 1),))])
        record = VectorsRecord(INDEX, 2, 2, {}, [1.0, 0.0])
        write_vectors([(np.array([0, 1]), np.eye(2, dtype=np.float32))], folder / "index" / "vectors", record)
        journal.begin_attempt(folder / "collect")
        written = journal.Journal(folder / "collect", flush_s=1e9)
        for trajectory_id, error in (("a", ""), ("b", ""), ("c", "RolloutError: why")):
            told = {"started_at": "2026-11-25T12:00:00+00:00", "duration_s": 1.0}
            written.add(build_trajectory(build_search("rotor speed", 1), id=trajectory_id, error=error, **told))
        written.flush()
        files = journal.list_files(folder / "collect", "trajectories")
        process_part(read_records(files), 0, ProcessConfig(), folder / "process")
        deal_out(files, 1, folder / "dealt")
        sides = pa.table({"question_id": ["q1"], "side": ["train"]})
        write_parquet(folder / "format" / "questions.parquet", sides)
        document_parts.write_part(folder / "parts" / "0.parquet", (Span(Path("a.pdf")),), lambda span: (PAGES, []))
        one = np.eye(1, 2, dtype=np.float32)
        part = vector_parts.VectorPart(np.array([0]), one, one[0], np.array([b"key"]))
        (folder / "vector_parts").mkdir()
        np.savez(folder / "vector_parts" / "0.npz", **part._asdict())
        for place, names, _ in os.walk(folder):
            for path in (Path(place), *(Path(place, name) for name in names)):
                path.chmod(0o755)
        yield folder


def search(root: Path) -> object:
    searcher = Searcher(root / "index" / "search_index", syntax="query")
    hits = [*searcher.search("rotor speed", 5), *searcher.search("roto* 1", 5), *searcher.search('"rotor 2"', 5)]
    return [(hit, searcher.page(hit)) for hit in hits]


def rank_vectors(root: Path) -> object:
    found = PageVectors(root / "index" / "vectors", INDEX)
    return found.rank(np.array([1.0, 0.5], np.float32), 2)


def index_anew(root: Path) -> object:
    with tempfile.TemporaryDirectory() as scratch:
        build_index(root / "index" / "pages.parquet", Path(scratch, "index"), SearchConfig())
        return read_record(Path(scratch, "index")).num_pages


def read_corpus_part(root: Path) -> object:
    columns = {"rank": 0, "path": "a.pdf", "document": "a.pdf", "state": "", "settled": "", "content": "", "is_kept": False}
    listed = pl.DataFrame({name: [value] for name, value in columns.items()}, schema_overrides={"rank": pl.UInt32})
    return KeptDocuments(listed).gather([root / "parts" / "0.parquet"], root / "parts").rows()


def read_finished(run_dir: Path) -> object:
    engines = {journal.read_engine(path) for path in journal.list_files(run_dir, "trajectories")}
    return journal.read_finished(run_dir, ["a"], engines)


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "the index: its pages": ("index/search_index/pages.arrow", search),
    **{
        f"the index: {suffix}": (f"index/search_index/tantivy/*.{suffix}", search)
        for suffix in ("fast", "fieldnorm", "idx", "pos", "store", "term")
    },
    "the index: meta.json": ("index/search_index/tantivy/meta.json", search),
    "the texts to index": ("index/search_index/pages.arrow", lambda root: map_texts(root / "index/search_index/pages.arrow")),
    "the pages to index": ("index/pages.parquet", index_anew),
    "vectors": ("index/vectors/vectors.npy", rank_vectors),
    "rows of vectors": ("index/vectors/rows.npy", rank_vectors),
    "a part of vectors": ("vector_parts/0.npz", lambda root: vector_parts.read_part(root / "vector_parts/0.npz").rows.tolist()),
    "a part of the corpus": ("parts/0.parquet", read_corpus_part),
    "questions": (
        "index/questions.parquet",
        lambda root: schemas.read_table(root / "index/questions.parquet", schemas.QUESTIONS),
    ),
    "pages of examples": ("index/pages.parquet", lambda root: read_examples(root / "index", 1)),
    "pictures of pages": ("index/pages.parquet", lambda root: ThumbnailStore(root / "index").find([Evidence("1.pdf", 1)], root)),
    "ids of the journal": ("collect/trajectories/*", lambda root: journal.read_finished_ids(root / "collect")),
    "successes of the journal": ("collect/trajectories/*", lambda root: journal.read_successes(root / "collect")),
    "rollouts of the journal": ("collect/trajectories/*", lambda root: read_finished(root / "collect")),
    "all of the journal": ("collect/trajectories/*", lambda root: journal.read_trajectories(root / "collect")),
    "counts": ("collect/trajectories/*", lambda root: count_files(journal.list_files(root / "collect", "trajectories"))),
    "failures": ("collect/failures/*", lambda root: read_failures(root / "collect")),
    "images that were shown": ("collect/trajectories/*", lambda root: drop_rollouts_without_images(root / "collect", [])),
    "sizes of trajectories": ("collect/trajectories/*", lambda root: check_files(root / "collect" / "trajectories")),
    "settings of trajectories": (
        "collect/trajectories/*",
        lambda root: check_settings(journal.list_files(root / "collect", "trajectories")),
    ),
    "records": ("collect/trajectories/*", lambda root: read_records(journal.list_files(root / "collect", "trajectories"))),
    "what is exported": ("collect/trajectories/*", lambda root: list(_read_all(root / "collect" / "trajectories"))),
    "what is listed": ("collect/trajectories/*", lambda root: read_listing(root / "collect")),
    "dealt records": ("dealt/part-00000/*", lambda root: read_dealt(root / "dealt" / part_name(0))),
    "turns": ("process/turns/*", lambda root: read_part(root / "process", PART).turns),
    "scored trajectories": ("process/trajectories/*", lambda root: read_part(root / "process", PART).trajectories),
    "sides": ("format/questions.parquet", lambda root: read_side(root / "format", "train")),
}
"""What is read of a run, by which file it is and by what reads it."""

LISTED = ("collect/", "dealt/")
"""Where files are found by listing their folder: one that is gone is none of the run's."""
FAULTS = ("gone", "a folder", "a loop of links", "empty", "cut", "other bytes", "a disk that fails", "closed")


def damage(path: Path, data: bytes, fault: str) -> None:
    """Put something in the place of a file that is away."""
    if fault == "a folder":
        path.mkdir()
    elif fault == "a loop of links":
        path.symlink_to(path.name)
    elif fault == "a disk that fails":
        path.symlink_to("/proc/self/mem")  # its first bytes cannot be read (EIO), nor can it be mapped
    elif fault != "gone":
        half = data[: len(data) // 2]
        other = data[:8] + bytes(byte ^ 0xFF for byte in data[8:-8]) + data[-8:]
        path.write_bytes({"empty": b"", "cut": half, "other bytes": other, "closed": data}[fault])
        path.chmod(0 if fault == "closed" else 0o644)


@contextmanager
def damaged(path: Path, fault: str) -> Iterator[None]:
    """A file is read by somebody who is not root, and not what it was."""
    aside = path.with_name(f".aside-{path.name}")
    data = path.read_bytes()
    is_root = os.geteuid() == 0
    path.rename(aside)
    try:
        damage(path, data, fault)
        if fault == "closed" and is_root:
            with suppress(OSError):  # where there is no such user, nothing is closed to this one
                os.seteuid(NOBODY)
        yield
    finally:
        if fault == "closed" and is_root:
            os.seteuid(0)
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        aside.rename(path)


def are_equal(one: Any, other: Any) -> bool:
    return one.equals(other) if hasattr(one, "equals") else one == other


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it had happened between the quick look at the files and their being read."""
    for module in (ranker, vectors):
        monkeypatch.setattr(module, "check_files", lambda *folder: None)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", READERS)
def test_a_read_that_fails_names_the_file_and_what_to_do(root: Path, name: str) -> None:
    pattern, read = READERS[name]
    [path] = root.glob(pattern)
    sound = read(root)
    for fault in FAULTS:
        if fault == "gone" and (pattern.startswith(LISTED) or name == "pictures of pages"):  # a run may have none
            continue
        if fault == "other bytes" and read is search and "tantivy" in pattern:
            continue  # these are for the look at the files, see test_damaged_index.py
        INJECTED[fault] += 1
        try:
            with damaged(path, fault):
                found = read(root)
        except DragRayError as error:
            message = str(error)
            assert "\n" not in message, fault
            assert str(path) in message or str(path.parent) in message or str(root / "index" / "search_index") in message, fault
            assert REMEDY.search(message), f"{fault}: {message}"
        except BaseException as error:
            raise AssertionError(f"{fault}: {error!r}") from error
        else:
            assert are_equal(found, sound), f"{fault}: read {found!r:.300}"


READ_IN_LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
import pyarrow
from drag_ray import schemas
from drag_ray.errors import ArtifactError
from drag_ray.index.vector_parts import read_part

read = {"table": lambda path: schemas.read_table(path, schemas.PAGES), "array": read_part}[sys.argv[1]]
pyarrow.set_cpu_count(1), pyarrow.set_io_thread_count(1)  # each further thread would take address space
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 200 * 2**20, -1))
try:
    read(Path(sys.argv[2]))
except ArtifactError as error:
    print(error)
"""


@pytest.mark.parametrize("kind", ["table", "array"])
def test_a_read_that_memory_does_not_suffice_for_says_so(tmp_path: Path, kind: str) -> None:
    """Half a GiB that takes some kilobytes on the disk."""
    path = tmp_path / ("pages.parquet" if kind == "table" else "0.npz")
    if kind == "table":
        pages = [build_page(text="spar" * 2**18, page_number=number) for number in range(1, 9)]
        table = schemas.to_table(pages, schemas.PAGES)
        write_parquet(path, pa.concat_tables([table] * 64))
    else:
        np.savez_compressed(path, rows=np.zeros(2**26, np.int64), vectors=np.zeros((1, 2)), probe=np.zeros(2))
    command = [sys.executable, "-c", READ_IN_LITTLE_MEMORY, kind, str(path)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr[-2_000:]
    assert f"{path}: cannot be read: memory is used up" in finished.stdout
    INJECTED["no memory"] += 1
