from evaluation_cases import build_comparison

from drag_ray.evaluate.verdict import write_verdict


def test_a_clear_gain_is_said_in_counts_and_points():
    [sentence] = write_verdict(build_comparison({"base": [None] * 40, "tuned": [1] * 10 + [None] * 30}))
    assert sentence.startswith("tuned finds 10 more first hits than base over 40 questions (+25.0 points, 95% interval +")
    assert sentence.endswith("p=0.002).")


def test_a_gain_that_chance_can_make_is_no_gain():
    [sentence] = write_verdict(build_comparison({"base": [None] * 40, "tuned": [1] * 3 + [None] * 37}))
    assert sentence.startswith("tuned does not beat base: 3 more first hits over 40 questions (+7.5 points")
    assert "p=0.25" in sentence
    assert "chance" in sentence


def test_a_loss_is_said_as_plainly():
    [sentence] = write_verdict(build_comparison({"base": [1] * 20, "tuned": [None] * 20}))
    assert sentence.startswith("tuned is worse than base: 20 fewer first hits over 20 questions (-100.0 points")


def test_no_difference_is_said():
    [sentence] = write_verdict(build_comparison({"base": [1, None], "tuned": [1, None]}))
    assert sentence.startswith("tuned does not beat base: as many first hits over 2 questions (+0.0 points")


def test_the_subject_is_judged_against_every_other_policy():
    sentences = write_verdict(build_comparison({"base": [None] * 20, "raw question": [1] * 20, "tuned": [1] * 19 + [None]}))
    assert "than base" in sentences[0]
    assert sentences[1].startswith("tuned does not beat raw question: 1 fewer first hit over 20 questions")
