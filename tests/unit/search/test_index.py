"""The page index: shards, fingerprints, refusal of what is stale, foreign or damaged, and its copy on a node."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_layer import limit_files
from small_index import open_index

from drag_ray.errors import ArtifactError, DataError, SearchIndexError
from drag_ray.search import index, shards
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import INDEX_NAME, PAGES_NAME, TANTIVY_DIR_NAME, build_index, copy_to_node, read_record
from drag_ray.search.page_table import map_texts
from drag_ray.search.searcher import Searcher
from drag_ray.storage import artifacts, checksums
from drag_ray.types import Page

WriteIndex = Callable[..., Path]
TEXTS = ["The rotor turns at 340 rpm.", "Maintenance of the rotors: check the oil.", "The tail boom carries the tail rotor."]


def rewrite_record(index_dir: Path, **values: Any) -> None:
    """Write the record with other values, and the list of the files so that it is not damaged."""
    record = json.loads((index_dir / INDEX_NAME).read_text())
    artifacts.write_json(index_dir / INDEX_NAME, {**record, **values})
    paths = [path for path in checksums.list_files(index_dir) if path != checksums.LIST_NAME]
    listed = checksums.compute_checksums(index_dir, paths)
    artifacts.write_text(index_dir / checksums.LIST_NAME, checksums.format_list(listed))


def write_shards(number: int, folder: Path, _: Path, config: SearchConfig, *_rest: object) -> None:
    """So many shards, as earlier versions have written them: fewer than eight may be left unmerged."""
    texts, tantivy_dir = map_texts(folder / PAGES_NAME), folder / TANTIVY_DIR_NAME
    shards.build_shards(texts, np.arange(len(texts)), tantivy_dir, config.analyzer, number)
    shards.merge_segments(tantivy_dir, config.analyzer)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory, write_index: WriteIndex) -> dict[int, Path]:
    """The same 2,900 pages of few words, so that many scores are equal, in 1, 2, 8 and 11 shards."""
    random = np.random.default_rng(3)
    words = [f"w{number}" for number in range(12)]
    texts = [" ".join(random.choice(words, size=random.integers(1, 6))) for _ in range(2_900)]
    folder = tmp_path_factory.mktemp("shards")
    written: dict[int, Path] = {}
    for number in (1, 2, 8, 11):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(index, "_write_tantivy", partial(write_shards, number))
            written[number] = write_index(folder / str(number), texts)
    return written


@pytest.mark.seconds
def test_shards_from_eight_on_are_merged(sharded: dict[int, Path]) -> None:
    num_segments = {
        number: shards.open_index(index_dir / TANTIVY_DIR_NAME, "english").searcher().num_segments
        for number, index_dir in sharded.items()
    }
    assert num_segments == {1: 1, 2: 2, 8: 1, 11: 1}


@pytest.mark.parametrize("query", ["w1", "w1 w2", "w3 w4 w5", "w0 w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11", "w7 w7 w2"])
@pytest.mark.parametrize("top_k", [1, 3, 10, 500])
def test_rankings_and_ties_do_not_depend_on_the_number_of_shards(sharded: dict[int, Path], query: str, top_k: int) -> None:
    rankings = {
        number: [(hit.file, hit.page_number, round(hit.score, 4)) for hit in Searcher(index_dir).search(query, top_k)]
        for number, index_dir in sharded.items()
    }
    assert len(rankings[1]) == top_k
    assert rankings[2] == rankings[8] == rankings[11] == rankings[1]


def test_equal_scores_come_in_order_of_file_and_page(sharded: dict[int, Path]) -> None:
    for index_dir in sharded.values():
        hits = Searcher(index_dir).search("w1 w2 w3", 2_000)
        keys = [(-hit.score, hit.file, hit.page_number) for hit in hits]
        assert keys == sorted(keys)
        assert len({hit.score for hit in hits}) < len(hits) / 4


def test_nothing_of_the_shards_is_left_and_the_fingerprint_does_not_depend_on_their_number(sharded: dict[int, Path]) -> None:
    for index_dir in sharded.values():
        assert {path.name for path in index_dir.iterdir()} == {*(INDEX_NAME, PAGES_NAME, TANTIVY_DIR_NAME, checksums.LIST_NAME)}
        assert not [path for path in (index_dir / TANTIVY_DIR_NAME).iterdir() if path.is_dir()]
    assert len({read_record(index_dir).fingerprint for index_dir in sharded.values()}) == 1


def test_equal_input_gives_an_equal_index_and_other_text_or_analyzer_another(tmp_path: Path, write_index: WriteIndex) -> None:
    first, second = (write_index(tmp_path / name, TEXTS) for name in ("a", "b"))
    record, other = asdict(read_record(first)), asdict(read_record(second))
    assert record == other
    assert Searcher(first).search("rotor oil", 10) == Searcher(second).search("rotor oil", 10)
    records = [
        read_record(write_index(tmp_path / "a", TEXTS)),
        read_record(write_index(tmp_path / "b", [*TEXTS[:-1], "other"])),
        read_record(write_index(tmp_path / "c", TEXTS, analyzer="plain")),
    ]
    assert len({record.fingerprint for record in records}) == 3


def test_a_missing_index_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(SearchIndexError, match=r"no finished search index.*jobs/index\.py"):
        Searcher(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tantivy_version": "0.1"}, r"built with tantivy 0\.1.*jobs/index\.py"),
        ({"format": 2}, r"index of format 2, this code reads format 5.*jobs/index\.py"),
        ({"num_pages": 4}, r"3 indexed pages, 4 in its record.*jobs/index\.py"),
        ({"unknown": 1}, r"not an index record.*jobs/index\.py"),
        *(
            ({field: "whoosh"}, rf"built with {field} 'whoosh', expected one of .*Build it again: python jobs/index\.py")
            for field in ("syntax", "analyzer")
        ),
    ],
)
def test_a_foreign_index_is_refused(tmp_path: Path, write_index: WriteIndex, values: dict[str, Any], message: str) -> None:
    index_dir = write_index(tmp_path, TEXTS)
    rewrite_record(index_dir, **values)
    with pytest.raises(SearchIndexError, match=message):
        Searcher(index_dir)


def test_an_index_with_other_pages_than_its_own_is_refused(tmp_path: Path, write_index: WriteIndex) -> None:
    index_dir, other_dir = write_index(tmp_path / "a", TEXTS), write_index(tmp_path / "b", TEXTS[:2])
    (other_dir / PAGES_NAME).replace(index_dir / PAGES_NAME)
    rewrite_record(index_dir)
    with pytest.raises(SearchIndexError, match=r"2 pages in the page table, 3 in its record.*jobs/index\.py"):
        Searcher(index_dir)
    index_dir = write_index(tmp_path / "a", TEXTS)
    write_index(tmp_path / "b", [*TEXTS, "another page"])
    (tmp_path / "b" / "pages.parquet").replace(tmp_path / "a" / "pages.parquet")
    with pytest.raises(SearchIndexError, match=r"stale, .*pages\.parquet has changed.*jobs/index\.py"):
        Searcher(index_dir)


def test_an_index_may_be_moved_away_from_its_pages(tmp_path: Path, write_index: WriteIndex) -> None:
    index_dir = write_index(tmp_path / "a", TEXTS)
    moved = index_dir.rename(tmp_path / "elsewhere")
    assert len(Searcher(moved).search("rotor", 3)) == 3


def test_a_new_index_takes_the_place_of_the_old_one_but_never_an_empty_one(tmp_path: Path, write_index: WriteIndex) -> None:
    write_index(tmp_path, TEXTS)
    searcher = Searcher(write_index(tmp_path, ["fuel"]))
    assert searcher.num_pages == 1
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".") and path.is_dir()] == []
    with pytest.raises(DataError, match="holds no page"):
        write_index(tmp_path, [])


def test_a_full_disk_is_named_and_leaves_no_index(tmp_path: Path, write_index: WriteIndex) -> None:
    """Files that may not grow fail in the same places as a disk that is full."""
    write_index(tmp_path, ["fuel " * 2_000])
    with limit_files(4_000), pytest.raises(ArtifactError, match=r"second: cannot be written .*Free some space"):
        build_index(tmp_path / "pages.parquet", tmp_path / "second", SearchConfig())
    assert not (tmp_path / "second").exists()


def build(folder: Path, *texts: str) -> Path:
    return open_index(folder, [Page("a.pdf", number, len(texts), text) for number, text in enumerate(texts, start=1)]).index_dir


def test_a_copy_finds_what_the_index_finds_without_it(tmp_path: Path) -> None:
    index_dir, node_dir = build(tmp_path / "run", "rotor speed", "tail rotor torque"), tmp_path / "node"
    expected = Searcher(index_dir).search("torque", 2)
    copy = copy_to_node(index_dir, node_dir)
    assert copy.parent == node_dir
    shutil.rmtree(tmp_path / "run")
    assert Searcher(copy).search("torque", 2) == expected


def test_processes_of_a_node_copy_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[Path] = []

    def note(index_dir: Path, copy: Path) -> None:
        copied.append(copy)
        genuine(index_dir, copy)

    genuine = index._copy  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(index, "_copy", note)
    index_dir = build(tmp_path / "run", "rotor speed")
    with ThreadPoolExecutor(8) as threads:
        copies = set(threads.map(lambda _: copy_to_node(index_dir, tmp_path / "node"), range(8)))
    assert len(copies) == len(copied) == 1
    rebuilt = build(tmp_path / "run", "rotor speed", "spar")
    assert copy_to_node(rebuilt, tmp_path / "node") not in copies


def test_what_is_damaged_on_its_way_leaves_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copytree(source: Path, target: Path, *inner: Any, **options: Any) -> None:
        genuine(source, target, *inner, **options)
        if not inner:  # not of a folder within
            pages = target / "pages.arrow"
            data = bytearray(pages.read_bytes())
            data[len(data) // 2] ^= 0xFF
            pages.write_bytes(data)

    genuine = shutil.copytree
    monkeypatch.setattr(index.shutil, "copytree", copytree)
    index_dir = build(tmp_path / "run", "rotor speed")
    with pytest.raises(SearchIndexError, match=r"search_index: damaged, or on its way here: pages\.arrow"):
        copy_to_node(index_dir, tmp_path / "node")
    assert [path.name for path in (tmp_path / "node").iterdir() if not path.name.startswith(".")] == []


def test_what_cannot_be_copied_is_told(tmp_path: Path) -> None:
    with pytest.raises(SearchIndexError, match=r"checksums\.jsonl: cannot be read"):
        copy_to_node(tmp_path / "nothing", tmp_path / "node")
    index_dir = build(tmp_path / "run", "rotor speed")
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match=r"file: cannot be written \(File exists\)"):
        copy_to_node(index_dir, tmp_path / "file")
