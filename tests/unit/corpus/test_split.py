from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drag_ray.corpus.components import compute_components
from drag_ray.corpus.split import assign_splits, normalise_question
from drag_ray.types import Evidence, Question

PAGES = st.builds(Evidence, st.sampled_from("abcdef"), st.integers(1, 6))


@st.composite
def question_lists(draw):
    texts = st.sampled_from(["How fast?", "how  fast", "Why?", "Who?"]) | st.text(max_size=6)
    rows = draw(
        st.lists(st.tuples(texts, st.lists(PAGES, min_size=1, max_size=3), st.sampled_from(["", "", "g", "h"])), max_size=25)
    )
    return [Question(f"q{n}", text, tuple(evidence), group=group) for n, (text, evidence, group) in enumerate(rows)]


def collect(questions, split, view):
    return {item for question in questions if question.split == split for item in view(question)}


@settings(max_examples=150, deadline=None)
@given(question_lists(), st.floats(0, 1), st.integers(0, 5), st.sampled_from(["question", "document"]))
def test_no_question_page_or_group_is_on_both_sides(questions, fraction, seed, split_by):
    result = assign_splits(questions, fraction, seed, split_by)
    views = [
        lambda question: [normalise_question(question.question)],
        lambda question: question.evidence,
        lambda question: [question.group] if question.group else [],
    ]
    if split_by == "document":
        views.append(lambda question: [item.file for item in question.evidence])
    for view in views:
        assert not collect(result, "train", view) & collect(result, "test", view)
    assert [replace(question, split="") for question in result] == questions
    assert {question.split for question in result} <= {"train", "test"}


def build_singles(count):
    return [Question(f"q{number}", f"question {number}", (Evidence("a", number),)) for number in range(1, count + 1)]


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.3, 1.0])
def test_the_test_share_is_met_by_questions(fraction):
    splits = [question.split for question in assign_splits(build_singles(200), fraction, seed=0)]
    assert splits.count("test") == 200 * fraction


def test_a_component_larger_than_the_test_share_goes_to_train():
    giant = [Question(f"g{number}", f"giant {number}", (Evidence("g", 1),)) for number in range(60)]
    result = assign_splits(giant + build_singles(40), 0.3, seed=0)
    assert {question.split for question in result[:60]} == {"train"}
    assert sum(question.split == "test" for question in result) == 30


def test_the_split_depends_on_the_seed_and_not_on_the_order():
    questions = build_singles(50)
    first = {question.id: question.split for question in assign_splits(questions, 0.3, seed=1)}
    assert first == {question.id: question.split for question in assign_splits(questions[::-1], 0.3, seed=1)}
    assert first != {question.id: question.split for question in assign_splits(questions, 0.3, seed=2)}


def test_given_splits_are_kept_and_their_component_follows():
    page = (Evidence("a", 1),)
    questions = [
        Question("q1", "one", page, split="test"),
        Question("q2", "two", page),
        Question("q3", "three", (Evidence("b", 1),)),
    ]
    assert [question.split for question in assign_splits(questions, 0.0, seed=0)] == ["test", "test", "train"]


def test_by_document_questions_about_one_file_stay_together():
    assert len({question.split for question in assign_splits(build_singles(20), 0.3, 0, "document")}) == 1


def test_components_are_named_by_their_first_member():
    assert compute_components([["a"], ["b"], ["c", "b"], [], ["a", "c"]]) == [0, 0, 0, 3, 0]
    assert compute_components([["x"], ["y"], ["y"]]) == [0, 1, 1]
