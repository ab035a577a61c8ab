"""The page index: ranking, ties, hostile text, and refusal of what is not an index."""

import json
from pathlib import Path

import bm25s
import numpy as np
import pytest
import Stemmer
from hypothesis import given, settings
from hypothesis import strategies as st

from drag_ray import artifacts, schemas
from drag_ray.errors import DataError, SearchIndexError
from drag_ray.search.analyzer import build_analyzer
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import INDEX_NAME, build_index
from drag_ray.search.searcher import Searcher
from drag_ray.types import Page

TEXTS = [
    "The rotor turns at 340 rpm.",
    "Maintenance of the rotors: check the oil.",
    "The tail boom carries the tail rotor.",
    "Fuel and oil are filled through the left hatch.",
    "Identical page about batteries.",
    "Identical page about batteries.",
    "Identical page about batteries.",
]


def write_index(folder: Path, texts: list[str], **options: str) -> Path:
    pages = [Page(f"file{number:02}.pdf", 1, 1, text) for number, text in enumerate(texts)]
    artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages[::-1], schemas.PAGES))
    build_index(folder / "pages.parquet", folder / "index", SearchConfig(**options))  # type: ignore[arg-type]
    return folder / "index"


@pytest.fixture(scope="module")
def index_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_index(tmp_path_factory.mktemp("search"), TEXTS)


def files(searcher: Searcher, query: str, top_k: int = 10) -> list[str]:
    return [hit.file for hit in searcher.search(query, top_k)]


def test_words_match_in_every_inflection_and_case(index_dir: Path) -> None:
    assert set(files(Searcher(index_dir), "ROTORS")) == {"file00.pdf", "file01.pdf", "file02.pdf"}


def test_ties_come_in_order_of_file_and_page(index_dir: Path) -> None:
    searcher = Searcher(index_dir)
    assert files(searcher, "batteries") == ["file04.pdf", "file05.pdf", "file06.pdf"]
    assert files(searcher, "batteries", 2) == ["file04.pdf", "file05.pdf"]


def test_ranks_count_from_one_and_scores_fall(index_dir: Path) -> None:
    hits = Searcher(index_dir).search("tail rotor oil", 10)
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_file_names_are_not_searchable(index_dir: Path) -> None:
    searcher = Searcher(index_dir)
    assert files(searcher, "file03") == []
    assert files(searcher, "file:file03.pdf") == []
    assert files(searcher, "row:3") == []


def test_and_needs_every_word(index_dir: Path) -> None:
    assert files(Searcher(index_dir, operator="and"), "rotor oil") == ["file01.pdf"]


def test_the_index_remembers_its_operator(tmp_path: Path) -> None:
    assert files(Searcher(write_index(tmp_path, TEXTS, operator="and")), "rotor oil") == ["file01.pdf"]


def test_plain_analyzer_keeps_inflections_and_stop_words(tmp_path: Path) -> None:
    searcher = Searcher(write_index(tmp_path, TEXTS, analyzer="plain"))
    assert files(searcher, "rotors") == ["file01.pdf"]
    assert "file00.pdf" in files(searcher, "the")


def test_the_page_of_a_hit_has_its_text(index_dir: Path) -> None:
    searcher = Searcher(index_dir)
    [hit] = searcher.search("hatch", 1)
    assert searcher.page(hit) == Page("file03.pdf", 1, 1, TEXTS[3])


@pytest.mark.parametrize("query", ["", "   ", "???", "the of and", "\x00", "\ud800", "😀", '"(((', "a" * 100_000])
def test_text_without_a_known_word_finds_nothing(index_dir: Path, query: str) -> None:
    assert Searcher(index_dir).search(query, 3) == []


@pytest.mark.parametrize(
    "query", ['rotor"', "(rotor", "rotor AND", "NOT rotor", "text:rotor", "-rotor", "rotor\ud800", "rotor*", "[rotor TO"]
)
def test_syntax_in_model_text_is_only_words(index_dir: Path, query: str) -> None:
    assert "file00.pdf" in files(Searcher(index_dir), query)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_no_text_raises(index_dir: Path, query: str) -> None:
    assert len(Searcher(index_dir).search(query, 3)) <= 3


def test_equal_input_gives_an_equal_index(tmp_path: Path) -> None:
    first, second = (write_index(tmp_path / name, TEXTS) for name in ("a", "b"))
    assert Searcher(first).record == Searcher(second).record
    assert Searcher(first).search("rotor oil", 10) == Searcher(second).search("rotor oil", 10)


def test_other_text_or_analyzer_gives_another_fingerprint(tmp_path: Path) -> None:
    records = [
        Searcher(write_index(tmp_path / "a", TEXTS)).record,
        Searcher(write_index(tmp_path / "b", [*TEXTS[:-1], "other"])).record,
        Searcher(write_index(tmp_path / "c", TEXTS, analyzer="plain")).record,
    ]
    assert len({record.fingerprint for record in records}) == 3


def test_scores_agree_with_bm25s(tmp_path: Path) -> None:
    """Tantivy stores field lengths in one byte, so scores are close rather than equal for pages of over 40 words."""
    random = np.random.default_rng(0)
    words = [f"w{number}" for number in range(60)]
    texts = [" ".join(random.choice(words, size=random.integers(5, 39))) for _ in range(200)]
    searcher = Searcher(write_index(tmp_path, texts))
    analyzer = build_analyzer("english")
    reference = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    reference.index([analyzer.analyze(text) for text in texts], show_progress=False)
    for query in (["w1", "w7"], ["w3"], ["w10", "w20", "w30"]):
        scores = reference.get_scores(query)
        for hit in searcher.search(" ".join(query), 20):
            expected = scores[int(hit.file[4:6])] if len(texts) <= 100 else scores[texts.index(searcher.page(hit).text)]
            # Lucene's form leaves out the constant factor k1 + 1, Tantivy keeps it; the order is the same.
            assert hit.score == pytest.approx(expected * 2.2, rel=1e-4)


def test_stems_agree_with_snowball() -> None:
    stemmer = Stemmer.Stemmer("english")
    words = ["running", "connections", "maintenance", "relational", "happily", "indices", "batteries"]
    assert build_analyzer("english").analyze(" ".join(words)) == stemmer.stemWords(words)


def test_a_missing_index_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(SearchIndexError, match=r"jobs/index\.py"):
        Searcher(tmp_path / "nothing")


def test_an_index_of_another_tantivy_is_refused(tmp_path: Path) -> None:
    index_dir = write_index(tmp_path, TEXTS)
    record = json.loads((index_dir / INDEX_NAME).read_text())
    artifacts.write_json(index_dir / INDEX_NAME, {**record, "tantivy_version": "0.1"})
    with pytest.raises(SearchIndexError, match=r"built with tantivy 0\.1"):
        Searcher(index_dir)


def test_an_empty_page_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no page"):
        write_index(tmp_path, [])


def test_a_top_k_of_zero_is_refused(index_dir: Path) -> None:
    with pytest.raises(SearchIndexError, match="at least 1"):
        Searcher(index_dir).search("rotor", 0)
