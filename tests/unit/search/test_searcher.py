"""Asking the page index: ranking, ties, hostile text, filters, batches, snippets and similar pages."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bm25s
import numpy as np
import pytest

from drag_ray.errors import SearchIndexError
from drag_ray.search.analyzer import build_analyzer
from drag_ray.search.searcher import Searcher
from drag_ray.types import Hit, Page

WriteIndex = Callable[..., Path]
TEXTS = [
    "The rotor turns at 340 rpm.",
    "Maintenance of the rotors: check the oil.",
    "The tail boom carries the tail rotor.",
    "Fuel and oil are filled through the left hatch.",
    "Identical page about batteries.",
    "Identical page about batteries.",
    "Identical page about batteries.",
]


@pytest.fixture(scope="module")
def index_dir(tmp_path_factory: pytest.TempPathFactory, write_index: WriteIndex) -> Path:
    return write_index(tmp_path_factory.mktemp("search"), TEXTS)


def files(searcher: Searcher, query: str, top_k: int = 10) -> list[str]:
    return [hit.file for hit in searcher.search(query, top_k)]


def test_ranks_count_from_one_scores_fall_and_the_page_of_a_hit_has_its_text(index_dir: Path) -> None:
    hits = Searcher(index_dir).search("tail rotor oil", 10)
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    searcher = Searcher(index_dir)
    [hit] = searcher.search("hatch", 1)
    assert searcher.page(hit) == Page("file03.pdf", 1, 1, TEXTS[3])
    assert searcher.text(hit) == TEXTS[3]


def test_and_needs_every_word_and_the_index_remembers_it(index_dir: Path, tmp_path: Path, write_index: WriteIndex) -> None:
    assert files(Searcher(index_dir, operator="and"), "rotor oil") == ["file01.pdf"]
    assert files(Searcher(write_index(tmp_path, TEXTS, operator="and")), "rotor oil") == ["file01.pdf"]


def test_scores_agree_with_bm25s(tmp_path: Path, write_index: WriteIndex) -> None:
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


def test_a_word_that_is_said_twice_weighs_twice_and_the_syntax_of_the_index_can_be_overridden(index_dir: Path) -> None:
    searcher = Searcher(index_dir)
    [once] = searcher.search("hatch", 1)
    [twice] = searcher.search("hatch hatch", 1)
    assert twice.score == pytest.approx(2 * once.score)
    assert files(Searcher(index_dir), '"tail boom" NOT rotor') == files(Searcher(index_dir), "tail boom not rotor")
    assert files(Searcher(index_dir, syntax="query"), "tail NOT boom") == []
    assert files(Searcher(index_dir, syntax="query"), "rotor NOT boom") == ["file00.pdf", "file01.pdf"]


def test_only_the_named_files_are_searched_and_scores_stay(index_dir: Path) -> None:
    searcher = Searcher(index_dir)
    everywhere = {hit.file: hit.score for hit in searcher.search("rotor oil", 10)}
    chosen = searcher.search("rotor oil", 10, files={"file02.pdf", "file03.pdf", "lost.pdf"})
    assert {hit.file: hit.score for hit in chosen} == {file: everywhere[file] for file in ("file02.pdf", "file03.pdf")}
    assert [hit.rank for hit in chosen] == [1, 2]
    assert searcher.search("rotor", 10, files=["lost.pdf"]) == searcher.search("rotor", 10, files=[]) == []


def test_a_filter_takes_all_pages_of_a_file_and_no_neighbour(tmp_path: Path, write_index: WriteIndex) -> None:
    pages = [Page(file, number, 3, "rotor") for file in ("a", "b", "c") for number in (1, 2, 3)]
    hits = Searcher(write_index(tmp_path, pages)).search("rotor", 10, files=["b"])
    assert [(hit.file, hit.page_number) for hit in hits] == [("b", 1), ("b", 2), ("b", 3)]


def test_terms_are_counted_by_pages(index_dir: Path) -> None:
    searcher = Searcher(index_dir)
    assert searcher.analyze("The Rotors, oil oil") == ["rotor", "oil", "oil"]
    assert [searcher.doc_freq(term) for term in ("rotor", "oil", "rotors", "\ud800")] == [3, 2, 0, 0]


def test_a_hit_of_another_index_is_refused(index_dir: Path) -> None:
    searcher = Searcher(index_dir)
    for ask in (
        searcher.page,
        searcher.text,
        lambda hit: searcher.snippet(hit, "rotor"),
    ):
        with pytest.raises(SearchIndexError, match=r"lost\.pdf, page 1: not in this index"):
            ask(Hit("lost.pdf", 1, 1, 0.0))


def test_limits_below_one_are_refused(index_dir: Path) -> None:
    searcher = Searcher(index_dir)
    [hit] = searcher.search("hatch", 1)
    for ask in (
        lambda: searcher.search("rotor", -1),
        lambda: searcher.search("rotor", 0),
        lambda: searcher.search_expanded("rotor", "boom", 2.0, 0),
        lambda: searcher.snippet(hit, "rotor", 0),
    ):
        with pytest.raises(SearchIndexError, match="at least 1"):
            ask()


def test_many_threads_may_share_a_searcher(index_dir: Path) -> None:
    searcher = Searcher(index_dir, syntax="query")
    queries = ["rotor oil", '"tail rotor"', "ro* NOT oil", "batteries"] * 50
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda query: searcher.search(query, 5), queries))
    assert found == [searcher.search(query, 5) for query in queries]


FORMS = [
    # analyzer, page, what a keyboard writes
    ("german", "Das Cafe\u0301 in Zu\u0308rich o\u0308ffnet um neun.", "Zürich"),
    ("cjk", "製品番号ＡＢＣ１２３の説明書です。", "ABC123"),
    ("english", "The o\ufb03ce \ufb02oor plan shows the \ufb01rst \ufb01re exit.", "office fire"),
    ("plain", "zero\u200bwidth \u202abe\u200eside\u202c", "zerowidth beside"),
    ("arabic", "\ufe8e\ufedf\ufe91\ufef4\ufe96", "البيت"),
    ("plain", "10⁶ cells", "10^6"),
]


@pytest.mark.parametrize(("analyzer", "page", "query"), FORMS)
def test_what_looks_the_same_is_found_and_shown_as_it_stands(
    tmp_path: Path, write_index: WriteIndex, analyzer: str, page: str, query: str
) -> None:
    searcher = Searcher(write_index(tmp_path, ["pumps and valves 106 112", page], analyzer=analyzer))
    hits = searcher.search(query, 2)
    assert [hit.file for hit in hits] == ["file01.pdf"]
    assert [hit.file for hit in searcher.search(page, 2)] == ["file01.pdf"]
    snippet = searcher.snippet(hits[0], query, len(page))
    assert snippet.text == page
    shown = [page[start:end] for start, end in snippet.matches]
    assert {term for word in shown for term in searcher.analyze(word)} == set(searcher.analyze(query))


def test_patterns_have_the_form_of_what_they_match(tmp_path: Path, write_index: WriteIndex) -> None:
    searcher = Searcher(write_index(tmp_path, ["Zürich", "Zug"], analyzer="plain"), syntax="query")
    assert [hit.file for hit in searcher.search("zu\u0308r*", 2)] == ["file00.pdf"]
