"""What a model reads of a page: its beginning and what it says of the question."""

from collections.abc import Callable
from pathlib import Path

import pytest

from drag_ray.search.rerank import cut_passage
from drag_ray.search.searcher import Searcher
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


def test_a_page_that_fits_is_read_as_it_is(searcher: Searcher) -> None:
    assert cut(searcher, 0, 100) == TEXTS[0]
    assert cut(searcher, 1, 0) == LONG


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


def test_a_part_from_the_beginning_is_not_said_twice(searcher: Searcher) -> None:
    for question in ("Which axes has an array?", "nothing of it"):
        passage = cut(searcher, 1, 160, question)
        assert passage.startswith("numpy.ndarray.take\nAn array has axes.")
        assert passage.count("numpy") == 1
    assert cut(searcher, 3, 60) == "x" * 60
