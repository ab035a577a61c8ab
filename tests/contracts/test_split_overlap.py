"""Nothing that a model learns from is on the other side of a split as well: no question, no evidence page, no near-duplicate.

Whole corpora with planted near-duplicates go through what the index and format stages do with them; what comes out is looked at
with a similarity of its own, computed for every two pages.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from drag_ray import schemas
from drag_ray.corpus.near_duplicates import (
    MIN_WORDS,
    find_near_duplicates,
    list_evidence,
    read_near_duplicates,
    write_near_duplicates,
)
from drag_ray.corpus.split import split_questions
from drag_ray.format.config import FormatConfig
from drag_ray.format.split import TRAIN, VALIDATION, assign_sides
from drag_ray.storage import artifacts
from drag_ray.types import Evidence, Page, Question

NUM_ORIGINALS = 6
NUM_COPIES = 3
QUESTION_TEXTS = [f"How far is it to place {number}?" for number in range(60)]
# A seed has nothing that could be made simpler.
corpora = settings(max_examples=60, deadline=None, derandomize=True, phases=[Phase.generate])

Texts = dict[Evidence, str]


def plant_near_duplicates(draw: Random) -> Texts:
    """Pages of which three at a time are a text and copies with some words changed: few enough, or too many."""
    texts: Texts = {}
    for original in range(NUM_ORIGINALS):
        words = [f"word{original}x{number}" for number in range(draw.choice([MIN_WORDS // 2, MIN_WORDS, 40, 150]))]
        for copy in range(NUM_COPIES):
            share_changed = draw.choice([0.0, 0.02, 0.05, 0.1])
            edited = [f"new{draw.getrandbits(40)}" if draw.random() < share_changed else word for word in words]
            text = " ".join(edited)
            texts[Evidence(f"file{draw.randrange(9)}", 1 + NUM_COPIES * original + copy)] = draw.choice(
                [text, f" {text.upper()}!\n"]
            )
    return texts


def ask(draw: Random, texts: Texts, splits: list[str]) -> list[Question]:
    pages = list(texts)
    return [
        Question(
            f"q{number}",
            draw.choice(QUESTION_TEXTS),
            tuple(draw.sample(pages, draw.choice([1, 1, 1, 2]))),
            split=draw.choice(splits),
        )
        for number in range(draw.randint(2, 14))
    ]


def list_overlaps(one: Iterable[Question], other: Iterable[Question], texts: Texts) -> set[tuple[str, str]]:
    """The ids of each two questions, one of a side each, that share their text or have evidence that is nearly the same."""
    return {
        (left.id, right.id)
        for left, right in product(one, other)
        if left.question.lower() == right.question.lower()
        or any(page == its or nearly_duplicate(texts[page], texts[its]) for page, its in product(left.evidence, right.evidence))
    }


def nearly_duplicate(one: str, other: str) -> bool:
    runs = []
    for text in (one, other):
        words = text.strip(" !\n").lower().split(" ")
        if len(words) < MIN_WORDS:
            return False
        runs.append({tuple(words[start : start + 3]) for start in range(len(words) - 2)})
    return Fraction(len(runs[0] & runs[1]), len(runs[0] | runs[1])) >= Fraction(8, 10)


def to_table(texts: Texts) -> pa.Table:
    return schemas.to_table([Page(page.file, page.page_number, 99, text) for page, text in texts.items()], schemas.PAGES)


def select(questions: Iterable[Question], split: str) -> list[Question]:
    return [question for question in questions if question.split == split]


def split_corpus(draw: Random, splits: list[str]) -> tuple[list[Question], list[Question], Texts, list[str]]:
    """The questions as asked and as split, the pages, and the ids of those that were left out."""
    texts = plant_near_duplicates(draw)
    questions = ask(draw, texts, splits)
    near_duplicates = find_near_duplicates(to_table(texts), list_evidence(questions))
    kept, problems = split_questions(questions, draw.random(), draw.randrange(9), "question", near_duplicates)
    return questions, kept, texts, [problem.place.removeprefix("question ") for problem in problems]


@pytest.mark.seconds
@corpora
@given(st.integers(0, 2**32))
def test_of_a_drawn_split_nothing_is_on_both_sides_and_nothing_is_lost(seed: int) -> None:
    questions, kept, texts, left_out = split_corpus(Random(seed), [""])
    assert not list_overlaps(select(kept, "train"), select(kept, "test"), texts)
    assert [replace(question, split="") for question in kept] == questions
    assert not left_out


@corpora
@given(st.integers(0, 2**32))
def test_of_a_given_split_what_overlaps_is_left_out_of_train_and_nothing_else(seed: int) -> None:
    questions, kept, texts, left_out = split_corpus(Random(seed), ["train", "test"])
    overlapping = {name for name, _ in list_overlaps(select(questions, "train"), select(questions, "test"), texts)}
    assert set(left_out) == overlapping
    assert kept == [question for question in questions if question.id not in overlapping]


@corpora
@given(st.integers(0, 2**32))
def test_of_a_split_that_is_given_in_part_nothing_is_on_both_sides_and_the_given_test_stays(seed: int) -> None:
    questions, kept, texts, left_out = split_corpus(Random(seed), ["", "train", "test"])
    assert not list_overlaps(select(kept, "train"), select(kept, "test"), texts)
    given_splits = {question.id: question.split for question in questions}
    assert all(given_splits[question.id] in ("", question.split) for question in kept)
    assert sorted([*left_out, *(question.id for question in kept)]) == sorted(given_splits)
    assert not set(left_out) & {name for name, split in given_splits.items() if split == "test"}


@pytest.mark.seconds
@corpora
@given(st.integers(0, 2**32))
def test_training_validation_and_evaluation_have_nothing_in_common(seed: int) -> None:
    """Some of the trained questions come from elsewhere: the index stage has not seen them."""
    draw = Random(seed)
    _, kept, texts, _ = split_corpus(draw, ["train"] * 8 + ["test"])
    elsewhere = [replace(question, id=f"else{question.id}") for question in ask(draw, texts, ["train"])]
    evaluation, questions = select(kept, "test"), [*select(kept, "train"), *elsewhere]
    with TemporaryDirectory() as scratch:
        artifacts.write_parquet(Path(scratch) / "pages.parquet", to_table(texts))
        write_near_duplicates(Path(scratch), find_near_duplicates(to_table(texts), list_evidence(kept)))
        near_duplicates = read_near_duplicates(Path(scratch), questions)
    config = FormatConfig(validation_fraction=0.4, seed=draw.randrange(9))
    sides = assign_sides(questions, evaluation, config, near_duplicates)
    train, validation = ([question for question in questions if sides[question.id] == side] for side in (TRAIN, VALIDATION))
    for one, other in ((train, validation), (train, evaluation), (validation, evaluation)):
        assert not list_overlaps(one, other, texts)


@pytest.mark.parametrize(
    "test",
    [
        test_of_a_drawn_split_nothing_is_on_both_sides_and_nothing_is_lost,
        test_of_a_given_split_what_overlaps_is_left_out_of_train_and_nothing_else,
        test_of_a_split_that_is_given_in_part_nothing_is_on_both_sides_and_the_given_test_stays,
        test_training_validation_and_evaluation_have_nothing_in_common,
    ],
)
def test_these_tests_notice_when_pages_are_not_compared(test: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drag_ray.corpus.near_duplicates.find_similar", lambda sets: iter(()))
    with pytest.raises(AssertionError):
        test()
