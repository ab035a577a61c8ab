"""Windows of a page: its snippet, and what a model reads of it."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from drag_ray.search.analyzer import build_analyzer
from drag_ray.search.page_reranker import cut_passage
from drag_ray.search.searcher import Searcher
from drag_ray.search.snippet import choose_window, match_terms
from drag_ray.search.syntax import parse_query
from drag_ray.types import Evidence

LONG = "numpy.ndarray.take\n" + "An array has axes. " * 20 + "Out of bounds indices raise an error. " + "It is fast. " * 20
ONE_LINE = "Key points of the liver " * 60 + "A rotor turns. " + "It is well. " * 30
TEXTS = ["A short page about indices.", LONG, ONE_LINE, "x" * 400, "\n\n" + LONG]
QUESTION = "What about indices that are out of bounds? Does the rotor turn?"


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory, write_index: Callable[..., Path]) -> Searcher:
    return Searcher(write_index(tmp_path_factory.mktemp("passage"), TEXTS))


def cut(searcher: Searcher, place: int, max_chars: int, question: str = QUESTION) -> str:
    page = next(searcher.read_file(f"file{place:02}.pdf"))
    passage = cut_passage(searcher, Evidence(page.file, page.page_number), question, max_chars)
    assert not max_chars or len(passage) <= max_chars
    return passage


def test_a_page_that_fits_is_read_as_it_is_and_of_another_no_part_is_said_twice(searcher: Searcher) -> None:
    assert cut(searcher, 0, 100) == TEXTS[0]
    assert cut(searcher, 1, 0) == LONG
    for question in ("Which axes has an array?", "nothing of it"):
        passage = cut(searcher, 1, 160, question)
        assert passage.startswith("numpy.ndarray.take\nAn array has axes.")
        assert passage.count("numpy") == 1
    assert cut(searcher, 3, 60) == "x" * 60


@pytest.mark.parametrize("place", [1, 4])
def test_before_a_part_from_further_down_stands_how_the_page_begins(searcher: Searcher, place: int) -> None:
    head, _, part = cut(searcher, place, 160).partition("\n")
    assert head == "numpy.ndarray.take"
    assert "Out of bounds indices raise an error." in part
    assert part in LONG


def test_a_long_first_line_is_cut_between_words(searcher: Searcher) -> None:
    head, _, part = cut(searcher, 2, 200).partition("\n")
    assert head == "Key points of the liver Key points of the liver"
    assert "A rotor turns." in part
    assert cut(searcher, 2, 1000).partition("\n")[0] == "Key points of the liver " * 4 + "Key points of the liver"


ANALYZER = build_analyzer("english")


def choose(text: str, words: str, max_chars: int, weights: dict[str, float] | None = None) -> str:
    terms = set(ANALYZER.analyze(words))
    matched = [token for token in ANALYZER.locate(text) if token.term in terms]
    start, end = choose_window(text, matched, lambda term: (weights or {}).get(term, 1.0), max_chars)
    return text[start:end]


def test_a_short_page_is_its_own_window_and_without_a_match_the_page_begins() -> None:
    assert choose("rotor and oil", "oil", 100) == "rotor and oil"
    assert choose("one two three four", "missing", 9) == "one two"
    assert choose("", "missing", 9) == ""


def test_the_window_with_most_distinct_terms_wins_unless_a_rare_one_outweighs_them() -> None:
    text = "rotor rotor rotor filler filler filler filler filler rotor oil filler filler filler"
    assert choose(text, "rotor oil", 20) == "rotor oil"
    text = "oil fuel " + "filler " * 20 + "rotor " + "filler " * 20
    assert "rotor" in choose(text, "oil fuel rotor", 30, {"rotor": 5.0})


def test_words_are_cut_only_when_they_do_not_fit() -> None:
    text = "alpha beta gamma delta epsilon zeta eta theta"
    for size in range(6, len(text)):
        window = choose(text, "delta", size)
        assert len(window) <= size
        assert "delta" in window
        assert set(window.split()) <= set(text.split())
    assert len(choose("x" * 500, "missing", 100)) == 100


@pytest.mark.parametrize(
    ("query", "matching", "others"),
    [
        ("rotors oil NOT fuel", ["rotor", "oil"], ["fuel", "rotors"]),
        ('"tail rotor" ma*ce', ["tail", "rotor", "mace"], ["ma", "tailrotor"]),
        ("NOT (fuel)", [], ["fuel"]),
        ("maintenance*", ["maintenance", "maintenances", "mainten"], ["maintain"]),
        ("", [], ["", "rotor"]),
    ],
)
def test_what_a_query_asks_for_matches_and_what_it_excludes_does_not(query: str, matching: list[str], others: list[str]) -> None:
    assert match_terms(parse_query(query, ANALYZER, "or"), matching + others) == set(matching)


def test_a_window_of_many_matches_is_chosen_in_one_pass() -> None:
    text = "rotor oil fuel " * 20_000 + "tail"
    started = time.process_time()
    assert choose(text, "tail rotor oil fuel", 200_000).endswith("tail")
    assert time.process_time() - started < 5  # minutes, if each match looks at all that follow it


def test_the_chosen_window_weighs_as_much_as_any() -> None:
    rng = random.Random(0)
    for _ in range(200):
        text = " ".join(rng.choice(["rotor", "oil", "fuel", "tail", "filler", "gap"]) for _ in range(60))
        weights = {"rotor": 0.1, "oil": 0.7, "fuel": 1.3, "tail": 3.1}
        tokens = [token for token in ANALYZER.locate(text) if token.term in weights]
        start, end = choose_window(text, tokens, weights.__getitem__, 40)
        reachable = [
            sum(weights[term] for term in {other.term for other in tokens[first:] if other.end - token.start <= 40})
            for first, token in enumerate(tokens)
        ]
        found = sum(weights[term] for term in {token.term for token in tokens if start <= token.start and token.end <= end})
        assert found >= max(reachable) - 1e-6
