import random
import time

import pytest
from anls_star import anls_score

from drag_ray.agent.answers import compute_anls, compute_citation_score


def test_anls_of_equal_answers_ignores_case_and_spaces():
    assert compute_anls("  340   RPM ", ["340 rpm"]) == 1.0


def test_anls_is_one_minus_the_normalised_edit_distance():
    assert compute_anls("340 rpn", ["340 rpm"]) == pytest.approx(1 - 1 / 7)


def test_anls_below_one_half_is_zero():
    assert compute_anls("abcd", ["abxyz"]) == 0.0


def test_anls_takes_the_best_gold_variant():
    assert compute_anls("340 rpm", ["three hundred forty", "340 rpm"]) == 1.0


def test_anls_of_no_answer_is_zero_even_for_an_empty_gold_answer():
    assert compute_anls(" ", [""]) == 0.0


def test_anls_equals_the_package_on_random_texts():
    generator = random.Random(3)
    for _ in range(300):
        gold, answer = ("".join(generator.choices("ab c", k=generator.randint(1, 12))) for _ in range(2))
        expected = anls_score([gold], [answer]) if answer.strip() else 0.0
        assert compute_anls(answer, [gold]) == pytest.approx(expected), (gold, answer)


def test_anls_of_a_very_long_answer_is_immediate():
    started = time.process_time()
    assert compute_anls("word " * 100_000, ["340 rpm"] * 20) == 0.0
    assert time.process_time() - started < 1.0


def test_citation_scores_are_those_of_sets():
    score = compute_citation_score(["a", "b", "b", "c", "d"], ["a", "b", "e"])
    assert (score.precision, score.recall) == (2 / 4, 2 / 3)
    assert score.f1 == pytest.approx(2 * (1 / 2) * (2 / 3) / (1 / 2 + 2 / 3))


@pytest.mark.parametrize(("cited", "evidence"), [([], ["a"]), (["a"], []), (["a"], ["b"])])
def test_citations_without_overlap_score_zero(cited, evidence):
    score = compute_citation_score(cited, evidence)
    assert (score.precision, score.recall, score.f1) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("Zu\u0308rich", "Zürich"),
        ("\uff13\uff14\uff10 rpm", "340 rpm"),
        ("super\u00adintend\u200bent", "superintendent"),
        ("10⁶ cells", "10^6 cells"),
        ("1½ cups", "1 1/2 cups"),
        ("20 ℃", "20 °C"),
    ],
)
def test_answers_that_look_the_same_are_the_same(answer: str, gold: str) -> None:
    assert compute_anls(answer, [gold]) == compute_anls(gold, [answer]) == 1.0
    assert compute_anls("106", ["10⁶"]) < 1
