"""An index that is merged from the segments of an earlier one, beside one of the same pages that is built from nothing."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from file_layer import limit_files

from drag_ray import schemas
from drag_ray.errors import ArtifactError
from drag_ray.search import segments
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index, locate_segments, write_checksums
from drag_ray.search.metadata import Metadata
from drag_ray.search.searcher import Searcher
from drag_ray.storage import artifacts
from drag_ray.types import Page

pytestmark = pytest.mark.seconds

QUERIES = ("w1", "w1 w2 w3", "w5 w9 w30 w31", "w39")
Documents = dict[str, list[str]]


class Collection:
    """Documents of few words, so that many scores are equal, of lengths that Tantivy rounds."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(3)
        self.documents: Documents = {f"{number:04}": self.write(number % 9 + 1) for number in range(450)}

    def write(self, num_pages: int) -> list[str]:
        """The texts of so many pages."""
        sizes = self._random.integers(1, 90, num_pages)
        return [" ".join(f"w{word}" for word in self._random.integers(0, 40, size)) for size in sizes]

    def change(self) -> None:
        """Some documents get fewer or more pages, some go, and some come between the others and at both ends."""
        names = [str(name) for name in self._random.choice(list(self.documents), 7, replace=False)]
        self.documents |= {name: self.write(int(self._random.integers(1, 12))) for name in (*names[:5], "0225")}
        for name in names[5:]:
            del self.documents[name]
        self.documents |= {f"{names[0]}a": self.write(4), "": self.write(2), f"z{names[1]}": self.write(3)}

    def index(self, folder: Path, earlier: Path | None = None, groups: dict[str, str] | None = None) -> Path:
        """The folder of an index of the documents, which groups may see."""
        pages = [
            Page(file, number, len(texts), text) for file, texts in self.documents.items() for number, text in enumerate(texts, 1)
        ]
        artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
        table = pl.DataFrame({"file": sorted(groups), "group": [groups[file] for file in sorted(groups)]}) if groups else None
        metadata = None if table is None else Metadata(table, "group")
        earlier_dir = earlier and earlier / "search_index"
        build_index(folder / "pages.parquet", folder / "search_index", SearchConfig(), metadata, earlier_dir)
        return folder


def find(folder: Path, files: list[str] | None = None) -> list[tuple[str, str, int, float]]:
    """The pages that queries find, with their scores."""
    searcher = Searcher(folder / "search_index")
    return [(query, hit.file, hit.page_number, hit.score) for query in QUERIES for hit in searcher.search(query, 300, files)]


def count_added(folder: Path) -> int:
    return json.loads((locate_segments(folder / "search_index") / segments.STALE_NAME).read_text())["num_added"]


def test_scores_ties_and_files_are_those_of_a_build_from_nothing_after_any_number_of_changes(tmp_path: Path) -> None:
    collection = Collection()
    folder = collection.index(tmp_path / "0")
    for number, num_added in enumerate((1, 2, 0, 1), start=1):
        collection.change()
        if not num_added:  # too much is stale then
            collection.documents |= {name: collection.write(5) for name in list(collection.documents)[200:260]}
        folder = collection.index(tmp_path / str(number), folder)
        anew = collection.index(tmp_path / f"{number}-anew")
        some = [*list(collection.documents)[10:14], "", "0225"]
        assert find(folder) == find(anew)
        assert find(folder, some) == find(anew, some)
        assert count_added(folder) == num_added


def test_pages_that_are_only_removed_or_not_changed_at_all_need_no_new_segment(tmp_path: Path) -> None:
    collection = Collection()
    first = collection.index(tmp_path / "first")
    same = collection.index(tmp_path / "same", first)
    assert find(same) == find(first)
    del collection.documents["0003"]
    fewer = collection.index(tmp_path / "fewer", same)
    assert find(fewer) == find(collection.index(tmp_path / "anew"))


def test_a_group_finds_its_own_documents_whether_they_change_or_come_and_go(tmp_path: Path) -> None:
    collection = Collection()

    def index(name: str, earlier: Path | None = None) -> Path:
        groups = {file: "abc"[len(texts) % 3] for file, texts in collection.documents.items()}
        folder = collection.index(tmp_path / name, earlier, groups)
        for group in "abc":
            hits = Searcher(folder / "search_index").limit_to({group}).search("w1 w2", 3_000)
            holding = [file for file, texts in collection.documents.items() if {"w1", "w2"} & set(" ".join(texts).split())]
            assert {hit.file for hit in hits} == {file for file in holding if groups[file] == group}
        return folder

    first = index("first")
    collection.documents["0007"] = collection.write(5)  # another group's now
    second = index("second", first)
    assert count_added(second) == 1
    del collection.documents["0003"]
    assert count_added(index("third", second)) == 0


@pytest.mark.parametrize("has_groups", [False, True])
def test_segments_of_blank_pages_have_no_tokens(tmp_path: Path, has_groups: bool) -> None:
    collection = Collection()
    groups = dict.fromkeys(collection.documents, "a") if has_groups else None
    first = collection.index(tmp_path / "first", groups=groups)
    collection.documents["0005"] = ["", ""]
    second = collection.index(tmp_path / "second", first, groups)
    collection.documents["0007"] = collection.write(3)
    third = collection.index(tmp_path / "third", second, groups)
    assert count_added(third) == 2
    assert find(third) == find(collection.index(tmp_path / "anew", groups=groups))


def test_pages_that_are_gone_in_too_many_places_have_all_indexed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_MAX_RUNS", 2)
    collection = Collection()
    folder = collection.index(tmp_path / "0")
    for number, num_added in enumerate((1, 2, 0), start=1):
        collection.documents[f"{number}00"] = collection.documents.pop(f"0{number}00")
        folder = collection.index(tmp_path / str(number), folder)
        assert count_added(folder) == num_added


def test_an_index_whose_segments_find_no_room_to_be_merged_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collection = Collection()
    first = collection.index(tmp_path / "first")
    largest = max(path.stat().st_size for path in locate_segments(first / "search_index").iterdir())
    merge = segments.merge_segments
    monkeypatch.setattr(sys, "stderr", io.StringIO())  # the captured one is a file, limited too

    def merge_limited(*args: Any) -> None:
        with limit_files(largest):
            merge(*args)

    monkeypatch.setattr(segments, "merge_segments", merge_limited)
    for earlier in (None, first):
        with pytest.raises(ArtifactError, match="not merged the segments"):
            collection.index(tmp_path / "full", earlier)
    assert {path.name for path in (tmp_path / "full").iterdir() if path.is_dir()} == set()


@pytest.mark.parametrize("damage", ["segment", "stale", "gone", "of an earlier version"])
def test_segments_that_are_not_what_was_written_are_built_again(tmp_path: Path, damage: str) -> None:
    collection = Collection()
    first = collection.index(tmp_path / "first")
    folder = locate_segments(first / "search_index")
    path = next(folder.glob("*.idx")) if damage == "segment" else folder / segments.STALE_NAME
    content = path.read_bytes()
    if damage == "of an earlier version":
        (folder / segments._LABELS_NAME).unlink()
        write_checksums(folder)
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    collection.change()
    again = collection.index(tmp_path / "again", first)
    assert count_added(again) == 0
    assert find(again) == find(collection.index(tmp_path / "anew"))


def test_segments_from_a_store_which_has_no_hidden_files_are_kept(tmp_path: Path) -> None:
    collection = Collection()
    first = collection.index(tmp_path / "first")
    for path in locate_segments(first / "search_index").glob(".*"):
        path.unlink()
    collection.change()
    again = collection.index(tmp_path / "again", first)
    assert count_added(again) == 1
    assert find(again) == find(collection.index(tmp_path / "anew"))


def test_labels_are_in_order_and_none_is_given_twice_until_there_is_no_room() -> None:
    used = np.arange(5) * 16
    labels, num_given = used, 0
    while True:  # the third page is written anew again and again
        rows = np.array([0, 1, 3, 4])
        found = segments._label(5, rows, labels[rows], used)
        if found is None:
            break
        assert (np.diff(found) > 0).all()
        assert found[2] not in used
        labels, used, num_given = found, np.union1d(used, found), num_given + 1
    assert num_given == 4


def test_kept_segments_are_no_part_of_small_indexes(tmp_path: Path) -> None:
    collection = Collection()
    collection.documents = {"a": collection.write(3)}
    assert not locate_segments(collection.index(tmp_path) / "search_index").exists()
