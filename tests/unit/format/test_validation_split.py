import pytest
from hypothesis import given
from hypothesis import strategies as st

from drag_ray.format.config import FormatConfig
from drag_ray.format.split import TRAIN, VALIDATION, WITHHELD, assign_sides, assign_unlabelled
from drag_ray.types import Evidence, Question

EVIDENCE = st.lists(st.builds(Evidence, st.sampled_from(["a.pdf", "b.pdf"]), st.integers(1, 40)), max_size=3)
QUESTIONS = st.lists(
    st.builds(Question, st.text("abcdef0123", min_size=1, max_size=4), st.text("xyz ", max_size=3), EVIDENCE.map(tuple)),
    max_size=40,
    unique_by=lambda question: question.id,
)


def build_questions(num: int, **fields) -> list[Question]:
    return [
        Question(**{"id": f"q{number}", "question": f"{number}?", "evidence": (Evidence("a.pdf", number),), **fields})
        for number in range(num)
    ]


def pages_of(questions: list[Question], sides: dict[str, str], side: str) -> set[Evidence]:
    return {page for question in questions if sides[question.id] == side for page in question.evidence}


@pytest.mark.seconds
@given(QUESTIONS, QUESTIONS, st.floats(0, 0.99), st.integers(0, 5))
def test_no_page_and_no_question_is_on_two_sides(
    questions: list[Question], evaluation: list[Question], fraction: float, seed: int
) -> None:
    sides = assign_sides(questions, evaluation, FormatConfig(validation_fraction=fraction, seed=seed))
    assert set(sides) == {question.id for question in questions}
    assert not pages_of(questions, sides, TRAIN) & pages_of(questions, sides, VALIDATION)
    asked = {page for question in evaluation for page in question.evidence}
    kept = [question for question in questions if sides[question.id] != WITHHELD]
    assert not asked & {page for question in kept for page in question.evidence}
    assert not {question.id for question in evaluation} & {question.id for question in kept}
    assert not kept or TRAIN in sides.values()


def test_the_share_of_independent_questions_is_met() -> None:
    questions = build_questions(200)
    shares = {
        fraction: list(assign_sides(questions, [], FormatConfig(validation_fraction=fraction)).values()).count(VALIDATION)
        for fraction in (0.1, 0.0, 0.001)
    }
    assert shares == {0.1: 20, 0.0: 0, 0.001: 1}


def test_the_split_depends_on_the_seed_and_on_neither_the_order_nor_that_of_the_index() -> None:
    questions = build_questions(50)
    first, again, other = (
        assign_sides(listed, [], FormatConfig(validation_fraction=0.2, seed=seed))
        for listed, seed in ((questions, 1), (questions[::-1], 1), (questions, 2))
    )
    assert first == again
    assert first != other
    sides = assign_sides(build_questions(10, split="train"), [], FormatConfig(validation_fraction=0.2))
    assert list(sides.values()).count(VALIDATION) == 2


def test_questions_that_are_linked_or_of_one_group_stay_together() -> None:
    pages = {"a": [("x", 1)], "b": [("x", 1), ("x", 2)], "c": [("x", 2)], "d": [("y", 1)]}
    questions = [Question(name, name, tuple(Evidence(*page) for page in listed)) for name, listed in pages.items()]
    sides = assign_sides(questions, [], FormatConfig(validation_fraction=0.5))
    assert sides == {"a": TRAIN, "b": TRAIN, "c": TRAIN, "d": VALIDATION}
    questions = [question for number in range(10) for question in _group(f"g{number}", 4)]
    sides = assign_sides(questions, [], FormatConfig(validation_fraction=0.3))
    assert list(sides.values()).count(VALIDATION) == 12
    for question in questions:
        assert {sides[other.id] for other in questions if other.group == question.group} == {sides[question.id]}


def _group(name: str, num: int) -> list[Question]:
    return [Question(f"{name}-{number}", f"{name} {number}?", (Evidence(name, number),), group=name) for number in range(num)]


def test_what_evaluation_asks_is_withheld_and_its_documents_where_wanted() -> None:
    questions = build_questions(4)
    evaluation = [
        Question("e1", "What  3 ?", (Evidence("b.pdf", 1),)),
        Question("e2", "Else?", (Evidence("a.pdf", 0),)),
        Question("e3", "3", (Evidence("c.pdf", 9),)),
    ]
    config = FormatConfig(validation_fraction=0.0)
    assert assign_sides(questions, evaluation, config) == {"q0": WITHHELD, "q1": TRAIN, "q2": TRAIN, "q3": WITHHELD}
    by_document = FormatConfig(validation_fraction=0.0, split_by="document")
    assert set(assign_sides(questions, evaluation, by_document).values()) == {WITHHELD}


def test_near_duplicates_of_what_evaluation_asks_are_withheld_and_the_others_stay_together() -> None:
    questions = build_questions(40)
    pages = [question.evidence[0] for question in questions]
    asked = Evidence("z.pdf", 1)
    near_duplicates = {asked: [0], pages[0]: [0, 1], pages[1]: [1], **{page: [2] for page in pages[10:20]}}
    config = FormatConfig(validation_fraction=0.4)
    sides = assign_sides(questions, [Question("e", "Else?", (asked,))], config, near_duplicates)
    assert [name for name, side in sides.items() if side == WITHHELD] == ["q0"]
    assert len({sides[f"q{number}"] for number in range(10, 20)}) == 1
    assert list(sides.values()).count(VALIDATION) == 16


def test_questions_without_evidence_are_trained_on_unless_they_are_asked_elsewhere() -> None:
    labelled = build_questions(2)
    sides = {"q0": TRAIN, "q1": VALIDATION}
    asked = [*zip("abc", ("0?", "1?", "tested?"), strict=True), ("d", "new?")]
    unlabelled = [Question(name, text, ()) for name, text in asked]
    found = assign_unlabelled(unlabelled, labelled, sides, [Question("t", "Tested", ())], FormatConfig())
    assert found == {"a": TRAIN, "b": WITHHELD, "c": WITHHELD, "d": TRAIN}
    grouped = [Question(f"{group}-same", "else?", (), group=group) for group in ("1", "2")]
    [held] = build_questions(1, group="1")
    assert list(assign_unlabelled(grouped, [held], {"q0": VALIDATION}, [], FormatConfig()).values()) == [WITHHELD, TRAIN]
