"""Filters on metadata of documents: searches by words, vectors and both find the best of what the filter leaves of all hits."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_index import open_index

from drag_ray import schemas
from drag_ray.errors import DataError, SearchIndexError
from drag_ray.search.config import ColumnType, SearchConfig
from drag_ray.search.dense import DenseSearcher, HybridSearcher
from drag_ray.search.index import build_index
from drag_ray.search.metadata import DTYPES, MAX_VALUES, TABLE_NAME, FilterError, Metadata, parse_date
from drag_ray.search.searcher import Searcher
from drag_ray.search.vectors import PROBE, PageVectors, VectorsRecord, write_vectors
from drag_ray.serve.search.retrieval import Retrieval
from drag_ray.storage import artifacts
from drag_ray.types import Hit, Page

NUM_FILES, NUM_PAGES = 40, 3
WORDS = ("rotor", "blade", "spar", "valve", "pump")
ROWS: dict[str, dict[str, Any]] = {
    f"{number:02}.pdf": {
        "department": ("sales", "law", None)[number % 3],
        "year": float(2000 + number),
        "date": parse_date(f"2024-{number % 12 + 1:02}-01"),
        "is_final": number % 2 == 0,
        "tags": [WORDS[number % 5], "all"],
        "group": (["a"], ["a", "b"], ["c"], None)[number % 4],
    }
    for number in range(NUM_FILES)
}
TYPES: dict[str, ColumnType] = {
    "department": "text",
    "year": "number",
    "date": "date",
    "is_final": "boolean",
    "tags": "list",
    "group": "list",
}
FILTERS: Sequence[tuple[dict[str, Any], Callable[[dict[str, Any]], bool]]] = (
    ({"department": "sales"}, lambda row: row["department"] == "sales"),
    ({"department": ["sales", "law"]}, lambda row: row["department"] in ("sales", "law")),
    ({"department": {"any": []}}, lambda row: False),
    ({"year": 2007}, lambda row: row["year"] == 2007),
    ({"year": {"gt": 2003, "lte": 2030.5}, "is_final": True}, lambda row: 2003 < row["year"] <= 2030 and row["is_final"]),
    ({"date": {"gte": "2024-11-01"}}, lambda row: row["date"].month >= 11),
    ({"date": "2024-03-01T01:00:00+01:00"}, lambda row: row["date"].month == 3),
    ({"tags": "pump"}, lambda row: "pump" in row["tags"]),
    ({"tags": {"any": ["pump", "spar"]}}, lambda row: bool({"pump", "spar"} & set(row["tags"]))),
    ({"tags": {"all": ["pump", "all"]}}, lambda row: "pump" in row["tags"]),
    ({}, lambda row: True),
)


def make_metadata(rows: dict[str, dict[str, Any]] = ROWS, access_column: str = "group") -> Metadata:
    columns = {name: pl.Series([row[name] for row in rows.values()], dtype=DTYPES[TYPES[name]]) for name in TYPES}
    return Metadata(pl.DataFrame({"file": list(rows), **columns}), access_column)


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory) -> Searcher:
    folder = tmp_path_factory.mktemp("metadata")
    draws = np.random.default_rng(0)
    pages = [
        Page(file, number, NUM_PAGES, " ".join(draws.choice(WORDS, 12)) + " of a plane")
        for file in ROWS
        for number in range(1, NUM_PAGES + 1)
    ]
    artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    build_index(folder / "pages.parquet", folder / "index", SearchConfig(syntax="query"), make_metadata())
    return Searcher(folder / "index")


@pytest.fixture(scope="module")
def dense(searcher: Searcher, tmp_path_factory: pytest.TempPathFactory) -> DenseSearcher:
    """Vectors by a model that counts words; a page has two windows, its halves."""

    def embed(texts: Sequence[str]) -> np.ndarray:
        return np.array([[text.split().count(word) + 0.1 for word in WORDS] for text in texts], np.float32)

    halves = [searcher._pages.text(row) for row in range(searcher.num_pages)]
    windows = [" ".join(part) for text in halves for part in (text.split()[:6], text.split()[6:])]
    rows, vectors = np.repeat(np.arange(searcher.num_pages), 2), embed(windows)
    probe = embed([PROBE])[0].tolist()
    folder = tmp_path_factory.mktemp("vectors") / "vectors"
    write_vectors([(rows, vectors)], folder, VectorsRecord(searcher.record.fingerprint, len(rows), len(WORDS), {}, probe))
    return DenseSearcher(searcher, PageVectors(folder, searcher.record.fingerprint), embed)


def keep(hits: Sequence[Hit], is_met: Callable[[dict[str, Any]], bool]) -> list[tuple[str, int, float]]:
    return [(hit.file, hit.page_number, hit.score) for hit in hits if is_met(ROWS[hit.file])]


def read(hits: Sequence[Hit]) -> list[tuple[str, int, float]]:
    return [(hit.file, hit.page_number, hit.score) for hit in hits]


@pytest.mark.parametrize(("conditions", "is_met"), FILTERS)
@pytest.mark.parametrize("query", ["rotor", "rotor pump pump", '"of a plane" NOT spar', "rot* AND valve"])
def test_words_find_what_the_filter_leaves_of_all_hits_with_the_same_scores(
    searcher: Searcher, query: str, conditions: dict[str, Any], is_met: Callable[[dict[str, Any]], bool]
) -> None:
    expected = keep(searcher.search(query, searcher.num_pages), is_met)
    found = searcher.narrow(conditions).search(query, 7)
    assert read(found) == [(file, page, pytest.approx(score, 1e-5)) for file, page, score in expected[:7]]


@pytest.mark.parametrize(("conditions", "is_met"), FILTERS)
def test_vectors_and_both_find_top_k_among_what_the_filter_leaves(
    searcher: Searcher, dense: DenseSearcher, conditions: dict[str, Any], is_met: Callable[[dict[str, Any]], bool]
) -> None:
    narrowed = searcher.narrow(conditions)
    expected = keep(dense.search("rotor blade", searcher.num_pages), is_met)
    assert read(dense.restrict(narrowed).search("rotor blade", 5)) == expected[:5]
    both = HybridSearcher(searcher, dense).restrict(narrowed)
    served = Retrieval(searcher, {"dense": dense, "hybrid": HybridSearcher(searcher, dense)}).restrict(narrowed)
    assert served.choose("dense").search("rotor blade", 5) == dense.restrict(narrowed).search("rotor blade", 5)
    assert served.choose("hybrid").search("rotor blade", 5) == both.search("rotor blade", 5)
    assert served.choose("bm25") is narrowed
    for hits in (both.search("rotor", 5), both.search_expanded("rotor", "blade", 2.0, 5), both.weigh(0.5).search("rotor", 5)):
        assert len(hits) == min(5, len(expected))
        assert all(is_met(ROWS[hit.file]) for hit in hits)
    asked = narrowed.search_expanded("rotor", "blade", 2.0, 4), narrowed.search_terms({"rotor": 2.0}, 4)
    assert all(is_met(ROWS[hit.file]) for hits in asked for hit in hits)


def test_an_index_without_a_filter_is_searched_as_one_without_metadata(searcher: Searcher, tmp_path: Path) -> None:
    pages = [searcher._pages.page(row) for row in range(searcher.num_pages)]
    plain = open_index(tmp_path, pages, syntax="query")
    assert plain.metadata is None
    assert plain.record.fingerprint == searcher.record.fingerprint
    for query in ("rotor", "rotor blade pump", '"of a plane" rotor'):
        assert read(searcher.search(query, 20)) == read(plain.search(query, 20))
    with pytest.raises(FilterError, match=r"no metadata of documents\. Build it with some: corpus\.metadata"):
        plain.narrow({"department": "sales"})
    with pytest.raises(SearchIndexError, match=r"corpus\.access_column"):
        plain.limit_to(["a"])


@pytest.mark.parametrize(
    ("conditions", "problem"),
    [
        ({"size": 1}, r"no column 'size', expected one of: department \(text\), year \(number\)"),
        ({"department": 3}, "'department' is a column of the type text: got int '3', expected a text"),
        ({"department": None}, "got NoneType"),
        ({"department": {"gte": "a"}}, "type text: got 'gte', expected eq, any as the operators"),
        ({"department": {}}, "got none, expected eq, any"),
        ({"year": "2007"}, "got str '2007', expected a number"),
        ({"year": True}, "got bool"),
        ({"year": float("nan")}, "expected a number"),
        ({"year": 10**400}, "expected a number"),
        ({"date": "2024-13-01"}, "expected an ISO date"),
        ({"date": {"gte": 20240101}}, "expected an ISO date"),
        ({"is_final": 1}, "expected a boolean"),
        ({"tags": {"any": "pump"}}, "any takes a list, got str"),
        ({"tags": {"all": [["pump"]]}}, "got list"),
        ({"department": {"any": ["a"] * (MAX_VALUES + 1)}}, "more than 1,000 values"),
    ],
)
def test_a_filter_that_cannot_be_asked_for_is_refused_with_what_can(
    searcher: Searcher, conditions: dict[str, Any], problem: str
) -> None:
    with pytest.raises(FilterError, match=problem):
        searcher.narrow(conditions)


def test_the_largest_filter_takes_no_time(searcher: Searcher) -> None:
    assert searcher.metadata
    wanted = ["pump", "pump", *(f"tag {number}" for number in range(MAX_VALUES - 2))]
    started = time.perf_counter()
    assert not searcher.metadata.select({"tags": {"all": wanted}}, TYPES).any()
    assert time.perf_counter() - started < 1
    assert searcher.metadata.select({"tags": {"all": ["pump", "pump"]}}, TYPES).sum() == NUM_FILES / len(WORDS)


def test_who_is_limited_to_groups_finds_names_and_reads_no_other_document(searcher: Searcher) -> None:
    limited = searcher.limit_to(["b", "nobody"])
    mine = {file for file, row in ROWS.items() if "b" in (row["group"] or [])}
    assert {hit.file for hit in limited.search("rotor OR blade OR spar", searcher.num_pages)} == mine
    assert not searcher.limit_to([]).search("rotor", 5)
    for file in ROWS:
        assert (limited.find_page(file, 1) is not None) == (file in mine)
        assert len(list(limited.read_file(f"./{file}"))) == (NUM_PAGES if file in mine else 0)
        hits = limited.search("rotor", 5, files=[file])
        assert {hit.file for hit in hits} <= {file} & mine
    hidden = next(file for file in ROWS if file not in mine)
    for method in (limited.page, limited.text):
        with pytest.raises(SearchIndexError, match="not in this index"):
            method(Hit(hidden, 1, 1, 1.0))
    with pytest.raises(SearchIndexError, match="not in this index"):
        limited.snippet(Hit(hidden, 1, 1, 1.0), "rotor")
    assert limited.shown_rows is not None
    assert limited.shown_rows.sum() == len(mine) * NUM_PAGES


def test_a_filter_never_widens_what_groups_may_see_nor_says_which_others_may(searcher: Searcher) -> None:
    limited = searcher.limit_to(["b"])
    mine = {hit.file for hit in limited.search("rotor OR blade OR spar", 200)}
    narrowed = limited.narrow({"tags": "all"})
    assert {hit.file for hit in narrowed.search("rotor OR blade OR spar", 200)} == mine
    with pytest.raises(FilterError, match=r"no column 'group'") as error:
        limited.narrow({"group": {"any": ["a"]}})
    assert "group (list)" not in str(error.value)
    assert "group" in searcher.list_filters()


def test_a_name_is_not_ambiguous_by_a_document_that_is_hidden(tmp_path: Path) -> None:
    composed, decomposed = "caf\u00e9.pdf", "cafe\u0301.pdf"
    pages = [Page(file, 1, 1, "rotor") for file in (composed, decomposed)]
    artifacts.write_parquet(tmp_path / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    table = pl.DataFrame({"file": sorted([composed, decomposed])}).with_columns(group=pl.col("file"))
    build_index(tmp_path / "pages.parquet", tmp_path / "index", SearchConfig(), Metadata(table, "group"))
    searcher = Searcher(tmp_path / "index")
    assert searcher.find_page(f"./{composed}", 1) is None  # either may be meant
    found = searcher.limit_to([decomposed]).find_page(composed, 1)
    assert found is not None
    assert found.file == decomposed


def test_metadata_of_other_documents_and_damaged_ones_are_refused(searcher: Searcher, tmp_path: Path) -> None:
    source = searcher.index_dir.parent / "pages.parquet"
    with pytest.raises(DataError, match="of other documents than the pages"):
        build_index(source, tmp_path / "index", SearchConfig(), make_metadata({file: ROWS[file] for file in list(ROWS)[1:]}))
    build_index(source, tmp_path / "index", SearchConfig(), make_metadata())
    path = tmp_path / "index" / TABLE_NAME
    path.unlink()
    with pytest.raises(SearchIndexError, match=r"damaged: .*metadata\.parquet"):
        Searcher(tmp_path / "index")
