import random
import time
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from drag_ray.corpus.near_duplicates import MIN_WORDS, compute_shingles, find_similar

PAIR = [(0, 1)]


def build_words(num: int, prefix: str = "w") -> list[str]:
    return [f"{prefix}{number}" for number in range(num)]


def are_similar(left: list[str], right: list[str]) -> bool:
    return list(find_similar([compute_shingles(" ".join(words)) for words in (left, right)])) == PAIR


def test_shingles_are_the_runs_of_three_words_each_once() -> None:
    assert len(compute_shingles(" ".join(build_words(50)))) == 48
    assert len(compute_shingles("one two three " * 20)) == 3
    text = " ".join(build_words(MIN_WORDS))
    shouted = text.upper().replace(" ", ",\n  ")
    assert np.array_equal(compute_shingles(text), compute_shingles(f"*{shouted}*"))


def test_typographic_forms_of_a_character_are_one() -> None:
    plain, typographic = (f"{word} " * 7 + " ".join(build_words(30)) for word in ("film 12", "\ufb01lm \uff11\uff12"))
    assert np.array_equal(compute_shingles(plain), compute_shingles(typographic))


def test_a_text_of_marks_takes_no_time() -> None:
    """Unicode's normalisation alone sorts so many for half a minute."""
    started = time.process_time()
    compute_shingles("a" + "\u0301" * 40_000 + "\u0316" * 40_000)
    assert time.process_time() - started < 2


@pytest.mark.parametrize("text", ["", " \n ", "Chapter 7. Landing gear", " ".join(build_words(MIN_WORDS - 1))])
def test_a_text_of_few_words_has_no_shingles(text: str) -> None:
    assert not compute_shingles(text).size


def test_characters_of_scripts_without_spaces_count_as_words() -> None:
    text = "主旋翼的转速在额定功率下为每分钟三百四十转超过该值时必须立即减小总距并检查传动系统"
    assert len(compute_shingles(text)) == len(text) - 2
    changed = text.replace("三百四十", "三百五十")
    assert are_similar([text], [changed])


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
