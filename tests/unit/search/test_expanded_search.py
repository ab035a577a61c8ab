"""A question searched together with what is added to it, beside the same search with weights made by hand."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drag_ray.search.analyzer import build_analyzer
from drag_ray.search.query import MAX_QUERY_CHARS, read_additions
from drag_ray.search.searcher import Searcher
from drag_ray.search.weighted_words import strip_weights, write_weight
from drag_ray.types import Hit

TEXTS = [
    "The rotor turns at 340 rpm.",
    "Maintenance of the rotors: check the oil.",
    "The tail boom carries the tail rotor.",
    "Fuel and oil are filled through the left hatch.",
    "A page about batteries.",
]
QUESTION = "Which rotor has a rotor oil hatch?"


@pytest.fixture(scope="module")
def index_dir(tmp_path_factory: pytest.TempPathFactory, write_index: Callable[..., Path]) -> Path:
    return write_index(tmp_path_factory.mktemp("expanded"), TEXTS)


@pytest.fixture(scope="module")
def searcher(index_dir: Path) -> Searcher:
    return Searcher(index_dir)


def ranking(hits: list[Hit]) -> list[tuple[str, int, float]]:
    return [(hit.file, hit.rank, round(hit.score, 4)) for hit in hits]


@pytest.mark.parametrize(
    ("addition", "weights"),
    [
        ("boom batteries", {"boom": 1, "batteri": 1}),
        ("boom^3 batteries^0.5", {"boom": 3, "batteri": 0.5}),
        ("boom^3, (batteries)^2.", {"boom": 3, "batteri": 2}),
        ("boom BOOM^2 boom", {"boom": 4}),
        ("Oil^4", {"oil": 4}),
        ("tail-boom^2", {"tail": 2, "boom": 2}),
        ("boom^0 batteries the of", {"batteri": 1}),
        ("10^9 boom", {"10": 1, "9": 1, "boom": 1}),
        ("2^32 3x10^9, (m^3/s) boom", {"2": 1, "32": 1, "3x10": 1, "9": 1, "m": 1, "3": 1, "boom": 1}),
        ("boom^10 oil^11 hatch^999", {"boom": 10, "oil": 1, "11": 1, "hatch": 1, "999": 1}),
        ("10⁹ boom", {"10": 1, "9": 1, "boom": 1}),
        ("cm^2 p53^2 boom", {"cm": 2, "p53": 2, "boom": 1}),
        ("boom^x batteries^-1", {"boom": 1, "x": 1, "batteri": 1, "1": 1}),
    ],
)
def test_added_words_weigh_as_they_say_beside_the_questions(searcher: Searcher, addition: str, weights: dict[str, float]) -> None:
    expected = {"which": 2.0, "rotor": 4.0, "has": 2.0, "oil": 2.0, "hatch": 2.0}
    for term, weight in weights.items():
        expected[term] = expected.get(term, 0.0) + weight
    found = searcher.search_expanded(QUESTION, addition, 2.0, 5)
    assert ranking(found) == ranking(searcher.search_terms(expected, 5))
    assert ranking(found) != ranking(searcher.search_expanded(QUESTION, "", 2.0, 5))


@pytest.mark.parametrize("addition", ["", "  ", "?!", "the of", "boom^0"])
def test_nothing_added_ranks_as_the_question_does(searcher: Searcher, addition: str) -> None:
    plain = searcher.search(QUESTION, 5)
    expanded = searcher.search_expanded(QUESTION, addition, 2.0, 5)
    assert len(plain) == 4
    assert [(hit.file, hit.rank) for hit in expanded] == [(hit.file, hit.rank) for hit in plain]
    assert [hit.score for hit in expanded] == pytest.approx([2 * hit.score for hit in plain])
    long = " ".join([QUESTION] * MAX_QUERY_CHARS) + " batteries"  # both leave out what is beyond the limit
    assert [hit.file for hit in searcher.search_expanded(long, addition, 2.0, 5)] == [
        hit.file for hit in searcher.search(long, 5)
    ]


def test_a_question_without_a_word_leaves_the_addition_and_neither_finds_nothing(searcher: Searcher) -> None:
    assert ranking(searcher.search_expanded("???", "boom^2", 2.0, 5)) == ranking(searcher.search_terms({"boom": 2}, 5))
    assert searcher.search_expanded("???", "", 2.0, 5) == []


@pytest.mark.parametrize("addition", ['"tail boom"', "batter*", "boom NOT batteries", "boom"])
def test_in_the_query_language_the_scores_of_question_and_added_query_add_up(index_dir: Path, addition: str) -> None:
    searcher = Searcher(index_dir, syntax="query")
    scores = {hit.file: 2 * hit.score for hit in Searcher(index_dir).search(QUESTION, 5)}
    added = searcher.search(addition, 5)
    assert len(added) == 1
    for hit in added:
        scores[hit.file] = scores.get(hit.file, 0.0) + hit.score
    found = searcher.search_expanded(QUESTION, addition, 2.0, 5)
    assert {hit.file: hit.score for hit in found} == pytest.approx(scores)


@pytest.mark.parametrize("options", [{"operator": "and"}, {"syntax": "query", "operator": "and"}])
def test_no_page_needs_all_words_of_a_question_whatever_the_operator(index_dir: Path, options: dict) -> None:
    searcher = Searcher(index_dir, **options)
    assert searcher.search(QUESTION, 5) == []
    assert [hit.file for hit in searcher.search_expanded(QUESTION, "", 1.0, 5)] == [
        hit.file for hit in Searcher(index_dir).search(QUESTION, 5)
    ]


@pytest.mark.seconds
@settings(max_examples=100, deadline=None)
@given(
    st.text(max_size=60),
    st.text(st.sampled_from('ab oil^12.0,²٣\ud800"*(-') | st.characters(), max_size=60),
    st.floats(0.01, 100),
)
def test_no_text_raises(index_dir: Path, question: str, addition: str, weight: float) -> None:
    for syntax in ("words", "query"):
        assert len(Searcher(index_dir, syntax=syntax).search_expanded(question, addition, weight, 3)) <= 3


def test_powers_do_not_outweigh_words_and_a_long_addition_is_cut(tmp_path: Path, write_index: Callable[..., Path]) -> None:
    pages = ["Add 10 ml and 2 g, then wait for 10 minutes.", "Dilute the cells to the 9th part in medium.", "10 of 2"]
    searcher = Searcher(write_index(tmp_path, pages))
    for addition in ("10^9 cells", "2^32 medium", "cm^2 medium"):
        assert searcher.search_expanded("How are they diluted?", addition, 2.0, 3)[0].file == "file01.pdf"
    words = "boom^2 " * MAX_QUERY_CHARS
    assert read_additions(words, build_analyzer("english")) == {"boom": 2.0 * (MAX_QUERY_CHARS // len("boom^2 "))}


@pytest.mark.parametrize(("word", "weight"), [("boom", 1), ("boom", 3), ("2019", 1), ("2019", 3), ("3x10", 2)])
def test_a_weight_that_is_written_is_read(searcher: Searcher, word: str, weight: int) -> None:
    assert searcher.read_additions(write_weight(word, weight)) == {word: weight}


def test_a_long_word_takes_time_in_proportion() -> None:
    started = time.process_time()
    for word in ("!" * 200_000, "a1" * 100_000, "^1" * 100_000, "!a" * 100_000):
        strip_weights(word + "^")
    assert time.process_time() - started < 5
