import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drag_ray.corpus.split import assign_splits, compute_components, find_overlaps, normalise_question, split_questions
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


@settings(max_examples=60, deadline=None)
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


def test_the_split_depends_on_the_seed_alone_and_large_components_go_to_train():
    questions = build_singles(50)
    first = {question.id: question.split for question in assign_splits(questions, 0.3, seed=1)}
    assert first == {question.id: question.split for question in assign_splits(questions[::-1], 0.3, seed=1)}
    assert first != {question.id: question.split for question in assign_splits(questions, 0.3, seed=2)}
    giant = [Question(f"g{number}", f"giant {number}", (Evidence("g", 1),)) for number in range(60)]
    result = assign_splits(giant + build_singles(40), 0.3, seed=0)
    assert {question.split for question in result[:60]} == {"train"}
    assert sum(question.split == "test" for question in result) == 30


def test_given_splits_are_kept_and_drawn_questions_follow_the_test_question_that_they_overlap_with():
    page = (Evidence("a", 1),)
    questions = [
        Question("q1", "one", page, split="test"),
        Question("q2", "two", page),
        Question("q3", "three", (Evidence("b", 1),)),
    ]
    assert [question.split for question in assign_splits(questions, 0.0, seed=0)] == ["test", "test", "train"]
    questions = [
        Question("t", "one", (Evidence("a", 1),), split="test"),
        Question("q", "two", (Evidence("a", 1),)),
        Question("g", "three", (Evidence("b", 7),), split="train"),
    ]
    kept, reasons = split(questions)
    assert (kept, list(reasons)) == ({"t": "test", "q": "test"}, ["question g"])
    questions = [
        Question("t", "one", (Evidence("a", 1),), split="test"),
        Question("q", "two", (Evidence("b", 7),)),
        Question("g", "three", (Evidence("c", 2),), split="train"),
    ]
    kept, reasons = split(questions)
    assert (kept, list(reasons)) == ({"t": "test", "g": "train"}, ["question q"])


def pair_up(questions, first_number=0):
    """Each two of the questions have near-duplicates as their evidence."""
    return {question.evidence[0]: [first_number + place // 2] for place, question in enumerate(questions)}


def test_near_duplicates_on_one_side_of_a_drawn_split_leave_it_as_it_is():
    """Whatever the sizes of the groups that they join."""
    for seed in range(100):
        draw = random.Random(seed)
        groups = [group for group in range(12) for _ in range(draw.choice([1, 1, 2, 5, 9]))]
        draw.shuffle(groups)
        questions = [replace(single, group=str(group)) for single, group in zip(build_singles(99), groups, strict=False)]
        plain = assign_splits(questions, 0.4, seed)
        train, test = ([question for question in plain if question.split == split][:6] for split in ("train", "test"))
        on_one_side = pair_up(train) | pair_up(test, first_number=3)
        assert assign_splits(questions, 0.4, seed, near_duplicates=on_one_side) == plain


def test_near_duplicates_that_cross_a_drawn_split_are_drawn_together_and_the_test_share_is_still_met():
    questions = build_singles(200)
    plain = assign_splits(questions, 0.3, seed=0)
    near_duplicates = pair_up(questions[:100])
    result = [question.split for question in assign_splits(questions, 0.3, 0, near_duplicates=near_duplicates)]
    assert any(plain[place].split != plain[place + 1].split for place in range(0, 100, 2))
    assert all(result[place] == result[place + 1] for place in range(0, 100, 2))
    assert result.count("test") == 60


NEAR = {Evidence("a", 1): [0], Evidence("b", 7): [0, 1], Evidence("c", 2): [1]}


def split(questions, **options):
    defaults = {"test_fraction": 0.0, "seed": 0, "split_by": "question", "near_duplicates": NEAR}
    kept, problems = split_questions(questions, **{**defaults, **options})
    return {question.id: question.split for question in kept}, {problem.place: problem.reason for problem in problems}


def test_of_given_splits_the_training_questions_that_overlap_with_the_test_are_left_out_and_named():
    questions = [
        Question("t1", "How fast?", (Evidence("b", 7),), split="test"),
        Question("q1", "one", (Evidence("x", 1), Evidence("a", 1)), split="train"),
        Question("q2", "two", (Evidence("b", 7),), split="train"),
        Question("q3", "how  fast", (Evidence("x", 2),), split="train"),
        Question("q4", "four", (Evidence("b", 8),), split="train"),
        Question("q5", "five", (Evidence("x", 3),), split="train", group="g"),
        Question("t2", "else", (Evidence("y", 1),), split="test", group="g"),
    ]
    kept, reasons = split(questions)
    assert kept == {"t1": "test", "q4": "train", "q5": "train", "t2": "test"}
    assert {place: reason.removesuffix(", so it is left out of train") for place, reason in reasons.items()} == {
        "question q1": "page 1 of 'a' nearly duplicates page 7 of 'b', evidence of test question 't1'",
        "question q2": "page 7 of 'b' is evidence of test question 't1' as well",
        "question q3": "it asks the same as test question 't1'",
    }
    kept, reasons = split(questions, split_by="document")
    assert "q4" not in kept
    assert reasons["question q4"] == "'b' holds evidence of test question 't1' as well, so it is left out of train"


def test_what_is_the_same_question_and_components_are_named_by_their_first_member():
    assert normalise_question("Wo liegt Zu\u0308\u00adrich,\u200b \uff11\uff12?") == normalise_question("wo liegt Zürich 12")
    changed = Question("q1", "changed", (Evidence("z", 1),))
    assert find_overlaps([changed], [Question("q1", "as it was", ())], "question", {}) == {
        "q1": "it has the id of a test question"
    }
    assert compute_components([["a"], ["b"], ["c", "b"], [], ["a", "c"]]) == [0, 0, 0, 3, 0]
    assert compute_components([["x"], ["y"], ["y"]]) == [0, 1, 1]
