from hypothesis import given
from hypothesis import strategies as st

from drag_ray.format.split import choose_validation_questions

PAGES = st.lists(st.tuples(st.sampled_from(["a.pdf", "b.pdf"]), st.integers(1, 40)), max_size=3)
EVIDENCE = st.dictionaries(st.text("abcdef0123", min_size=1, max_size=4), PAGES, max_size=40)


@given(EVIDENCE, st.floats(0, 0.99), st.integers(0, 5))
def test_no_evidence_page_is_on_both_sides(evidence: dict, fraction: float, seed: int) -> None:
    validation = choose_validation_questions(evidence, fraction, seed)
    sides = [
        {page for question, pages in evidence.items() if (question in validation) == side for page in pages}
        for side in (True, False)
    ]
    assert not sides[0] & sides[1]
    assert len(validation) < max(len(evidence), 1)


def test_the_share_of_independent_questions_is_met() -> None:
    evidence = {f"q{number}": [("a.pdf", number)] for number in range(200)}
    assert len(choose_validation_questions(evidence, 0.1, 0)) == 20
    assert choose_validation_questions(evidence, 0.0, 0) == frozenset()
    assert len(choose_validation_questions(evidence, 0.001, 0)) == 1


def test_the_split_depends_on_the_seed_and_not_on_the_order() -> None:
    evidence = {f"q{number}": [("a.pdf", number)] for number in range(50)}
    reversed_evidence = dict(reversed(evidence.items()))
    assert choose_validation_questions(evidence, 0.2, 1) == choose_validation_questions(reversed_evidence, 0.2, 1)
    assert choose_validation_questions(evidence, 0.2, 1) != choose_validation_questions(evidence, 0.2, 2)


def test_questions_that_are_linked_through_a_third_stay_together() -> None:
    evidence = {"a": [("x", 1)], "b": [("x", 1), ("x", 2)], "c": [("x", 2)], "d": [("y", 1)]}
    assert choose_validation_questions(evidence, 0.5, 0) == {"d"}
