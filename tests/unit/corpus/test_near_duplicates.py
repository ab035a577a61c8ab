"""Pages that nearly duplicate each other: their similarity, and the table of them."""

import random
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from drag_ray import schemas
from drag_ray.corpus.near_duplicates import (
    MIN_WORDS,
    compute_shingles,
    count_near_duplicates,
    find_near_duplicates,
    find_similar,
    read_near_duplicates,
    write_near_duplicates,
)
from drag_ray.storage import artifacts
from drag_ray.types import Evidence, Page, Question

ROTOR = "The main rotor turns at three hundred and forty revolutions a minute at rated power, and never faster than that " * 2
FUEL = "Fuel flows from the two wing tanks through the selector valve and the filter to the pump that the engine drives by a belt"
TEXTS = {1: ROTOR, 2: FUEL, 3: ROTOR.upper(), 4: f"{ROTOR} See chapter nine.", 5: "Blank", 6: "Blank", 7: ROTOR}


def build_pages(texts: dict[int, str]) -> pa.Table:
    pages = [Page("a.pdf", number, len(texts), text) for number, text in texts.items()]
    return schemas.to_table(pages, schemas.PAGES)


def list_pages(*numbers: int) -> list[Evidence]:
    return [Evidence("a.pdf", number) for number in numbers]


@pytest.mark.seconds
def test_pages_share_a_number_if_they_nearly_duplicate_each_other_and_only_then() -> None:
    found = find_near_duplicates(build_pages(TEXTS), list_pages(1, 2, 3, 4, 5, 6))
    assert list(found) == list_pages(1, 2, 3, 4, 5, 6)
    pairs = {
        (one.page_number, other.page_number)
        for one, numbers in found.items()
        for other, others in found.items()
        if one.page_number < other.page_number and set(numbers) & set(others)
    }
    assert pairs == {(1, 3), (1, 4), (3, 4)}
    assert count_near_duplicates(found) == 3


def test_a_chain_is_not_one_set_of_near_duplicates() -> None:
    words = [f"w{number}" for number in range(60)]
    texts = {1: words[:44], 2: words[:50], 3: words[:57]}
    found = find_near_duplicates(build_pages({number: " ".join(text) for number, text in texts.items()}), list_pages(1, 2, 3))
    first, second, third = (set(found[page]) for page in list_pages(1, 2, 3))
    assert (first & second, second & third) == (second - third, second - first)
    assert not first & third


def test_what_was_found_is_read_again_and_no_evidence_makes_an_empty_table(tmp_path: Path) -> None:
    found = find_near_duplicates(build_pages(TEXTS), list_pages(1, 2, 3))
    write_near_duplicates(tmp_path, found)
    questions = [Question("q", "?", tuple(list_pages(1, 3)))]
    assert read_near_duplicates(tmp_path, questions) == found
    write_near_duplicates(tmp_path, find_near_duplicates(build_pages(TEXTS), []))
    assert read_near_duplicates(tmp_path, []) == {}


def test_evidence_that_the_index_stage_did_not_compare_is_compared_with_all_of_it(tmp_path: Path) -> None:
    artifacts.write_parquet(tmp_path / "pages.parquet", build_pages(TEXTS))
    write_near_duplicates(tmp_path, find_near_duplicates(build_pages(TEXTS), list_pages(1, 2)))
    elsewhere = Question("q", "?", (*list_pages(7), Evidence("lost.pdf", 1)))
    found = read_near_duplicates(tmp_path, [elsewhere])
    one, fuel, other = (found[page] for page in list_pages(1, 2, 7))
    assert (one, list(fuel)) == (other, [])
    assert len(one) == 1


PAIR = [(0, 1)]


def build_words(num: int, prefix: str = "w") -> list[str]:
    return [f"{prefix}{number}" for number in range(num)]


def are_similar(left: list[str], right: list[str]) -> bool:
    return list(find_similar([compute_shingles(" ".join(words)) for words in (left, right)])) == PAIR


def test_shingles_are_the_runs_of_three_words_each_once_whatever_the_form_of_their_characters() -> None:
    assert len(compute_shingles(" ".join(build_words(50)))) == 48
    assert len(compute_shingles("one two three " * 20)) == 3
    text = " ".join(build_words(MIN_WORDS))
    shouted = text.upper().replace(" ", ",\n  ")
    assert np.array_equal(compute_shingles(text), compute_shingles(f"*{shouted}*"))
    plain, typographic = (f"{word} " * 7 + " ".join(build_words(30)) for word in ("film 12", "\ufb01lm \uff11\uff12"))
    assert np.array_equal(compute_shingles(plain), compute_shingles(typographic))
    text = "主旋翼的转速在额定功率下为每分钟三百四十转超过该值时必须立即减小总距并检查传动系统"
    assert len(compute_shingles(text)) == len(text) - 2
    changed = text.replace("三百四十", "三百五十")
    assert are_similar([text], [changed])


@pytest.mark.parametrize("text", ["", " \n ", "Chapter 7. Landing gear", " ".join(build_words(MIN_WORDS - 1))])
def test_a_text_of_few_words_has_no_shingles(text: str) -> None:
    assert not compute_shingles(text).size


@pytest.mark.parametrize(("num_words", "similar"), [(28, False), (29, True)])
def test_one_changed_word_is_overlooked_from_29_words_on(num_words: int, similar: bool) -> None:
    """Three of n - 2 shingles differ: (n - 5) / (n + 1) is 0.8 for n = 29."""
    words = build_words(num_words)
    assert are_similar(words, [*words[:14], "other", *words[15:]]) == similar


@pytest.mark.parametrize(("num_kept", "similar"), [(79, False), (80, True)])
def test_at_the_threshold_the_exact_similarity_decides(num_kept: int, similar: bool) -> None:
    """The shorter text begins the longer one, which has 100 shingles: their similarity is 0.79 and 0.80."""
    words = build_words(102)
    assert are_similar(words, words[: num_kept + 2]) == similar


def test_all_similar_pairs_are_found_and_no_others() -> None:
    """Compared with the similarity of each two texts of a set in which many are somewhat alike."""
    draw = random.Random(0)
    texts = []
    for family in range(12):
        original = build_words(draw.randint(20, 400), f"f{family}n")
        for _ in range(12):
            num_changed = int(draw.random() * 0.05 * len(original))
            changed = {draw.randrange(len(original)): f"x{draw.getrandbits(60)}" for _ in range(num_changed)}
            texts.append([changed.get(place, word) for place, word in enumerate(original)])
    runs = [set(zip(words, words[1:], words[2:], strict=False)) for words in texts]
    expected = {
        (left, right)
        for (left, one), (right, other) in combinations(enumerate(runs), 2)
        if Fraction(len(one & other), len(one | other)) >= Fraction(4, 5)
    }
    similar = list(find_similar([compute_shingles(" ".join(words)) for words in texts]))
    assert len(similar) == len(set(similar))
    assert set(similar) == expected
    assert 200 < len(expected) < 600  # of 792 pairs of one family


def test_a_page_of_any_length_is_compared() -> None:
    words = build_words(50_000)
    assert are_similar(words, words[:45_000])
    assert not are_similar(words, words[:35_000])
