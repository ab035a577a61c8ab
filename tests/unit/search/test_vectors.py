"""Vectors of pages: what is written is what is ranked, by the best window of each page."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drag_ray.errors import SearchIndexError
from drag_ray.search.vectors import PageVectors, VectorsRecord, has_vectors, write_vectors

INDEX = "0123456789abcdef"


def write(vectors_dir: Path, *parts: dict[int, list[list[float]]], **fields: Any) -> Path:
    """Each part holds the windows of pages by their rows."""
    pairs = [
        (
            np.array([row for row, windows in part.items() for _ in windows], np.int64),
            np.array([window for windows in part.values() for window in windows], np.float32).reshape(-1, 2),
        )
        for part in parts
    ]
    num_windows = sum(len(rows) for rows, _ in pairs)
    record = VectorsRecord(INDEX, num_windows, dimensions=2, embedding={"model": "m"}, probe=[1.0, 0.0])
    write_vectors(pairs, vectors_dir, replace(record, **fields))
    return vectors_dir


def rank(vectors: PageVectors, query: tuple[float, float], top_k: int) -> list[tuple[float, int]]:
    return vectors.rank(np.array(query, np.float32), top_k)


def test_a_page_is_as_good_as_its_best_window_and_equal_ones_come_in_the_order_of_their_rows(tmp_path: Path) -> None:
    first = {0: [[1.0, 0.0]], 2: [[0.0, 1.0], [0.6, 0.8]]}
    vectors = PageVectors(write(tmp_path / "vectors", first, {5: [[0.8, 0.6], [-1.0, 0.0]]}), INDEX)
    assert rank(vectors, (1.0, 0.0), 10) == [(1.0, 0), (0.8, 5), (0.6, 2)]
    assert rank(vectors, (0.0, 1.0), 2) == [(1.0, 2), (0.6, 5)]
    assert vectors.record.num_windows == 5
    near = [0.6 + 1e-7, 0.8]
    vectors = PageVectors(write(tmp_path / "vectors", {1: [[1.0, 0.0]], 3: [[0.6, 0.8]], 4: [near], 9: [[0.6, 0.8]]}), INDEX)
    assert rank(vectors, (0.6, 0.8), 4) == [(1.0, 3), (1.0, 4), (1.0, 9), (0.6, 1)]
    assert rank(vectors, (0.6, 0.8), 2) == [(1.0, 3), (1.0, 4)]


def test_the_ranking_is_that_of_all_inner_products(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows, windows = np.sort(random.integers(0, 300, 1_000)), random.normal(size=(1_000, 2)).astype(np.float32)
    record = VectorsRecord(INDEX, 1_000, 2, {}, [])
    write_vectors([(rows[:400], windows[:400]), (rows[400:], windows[400:])], tmp_path / "vectors", record)
    best: dict[int, float] = {}
    for row, window in zip(rows.tolist(), windows.astype(float).tolist(), strict=True):
        best[row] = max(best.get(row, -np.inf), 0.6 * window[0] + 0.8 * window[1])
    expected = sorted(((round(score, 5), row) for row, score in best.items()), key=lambda item: (-item[0], item[1]))[:20]
    found = rank(PageVectors(tmp_path / "vectors", INDEX), (0.6, 0.8), 20)
    assert [row for _, row in found] == [row for _, row in expected]
    assert [score for score, _ in found] == pytest.approx([score for score, _ in expected], abs=2e-5)


def test_vectors_replace_those_before_them_and_pages_without_text_leave_nothing_to_find(tmp_path: Path) -> None:
    vectors_dir = tmp_path / "vectors"
    assert not has_vectors(vectors_dir)
    write(vectors_dir, {0: [[1.0, 0.0]]})
    write(vectors_dir, {7: [[0.0, 1.0]]})
    assert has_vectors(vectors_dir)
    assert rank(PageVectors(vectors_dir, INDEX), (0.0, 1.0), 3) == [(1.0, 7)]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["vectors"]
    assert rank(PageVectors(write(tmp_path / "vectors", {}), INDEX), (1.0, 0.0), 3) == []


def test_vectors_of_another_index_or_format_or_none_are_refused(tmp_path: Path) -> None:
    vectors_dir = write(tmp_path / "vectors", {0: [[1.0, 0.0]]})
    with pytest.raises(SearchIndexError, match=f"vectors of the index {INDEX}, this one is other.*jobs/index"):
        PageVectors(vectors_dir, "other")
    with pytest.raises(SearchIndexError, match=r"no vectors of pages\. Make them: .*--embedding\.model"):
        PageVectors(tmp_path / "nowhere", INDEX)
    write(vectors_dir, {0: [[1.0, 0.0]]}, format=9)
    with pytest.raises(SearchIndexError, match="vectors of format 9, this code reads format 1"):
        PageVectors(vectors_dir, INDEX)


@pytest.mark.parametrize("name", ["vectors.npy", "rows.npy", "vectors.json", "checksums.jsonl"])
@pytest.mark.parametrize("keep", [0.0, 0.7])
def test_files_that_are_cut_short_are_an_error(tmp_path: Path, name: str, keep: float) -> None:
    vectors_dir = write(tmp_path / "vectors", {row: [[1.0, 0.0]] for row in range(50)})
    path = vectors_dir / name
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    with pytest.raises(SearchIndexError, match=r"jobs/index\.py --verify"):
        PageVectors(vectors_dir, INDEX)


def test_what_the_list_of_files_does_not_see_is_still_no_other_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick look takes samples of large files."""
    monkeypatch.setattr("drag_ray.search.vectors.check_files", lambda *arguments: None)
    vectors_dir = write(tmp_path / "vectors", {row: [[1.0, 0.0]] for row in range(50)})
    whole = (vectors_dir / "vectors.npy").read_bytes()
    for damaged in (b"", whole[:60], whole[:-8], b"x" + whole[1:]):
        (vectors_dir / "vectors.npy").unlink()
        (vectors_dir / "vectors.npy").write_bytes(damaged)
        with pytest.raises(SearchIndexError, match="cannot be read"):
            PageVectors(vectors_dir, INDEX)
