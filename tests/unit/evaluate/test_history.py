from typing import Any

from drag_ray.evaluate.history import RoundResult, build_page, choose_best, format_history


def build_comparison(tuned: float, question: float) -> dict[str, Any]:
    values = {"base": 0.4, "tuned": tuned, "question": question}
    row = {"metrics": {policy: {"value": value} for policy, value in values.items()}}
    return {"num_questions": 50, "baseline": "base", "rows": [{"name": "mrr", **row}, {"name": "hit_at_3", **row}]}


def build_history(*mrr: float) -> list[RoundResult]:
    comparisons = [build_comparison(value, question=0.5) for value in mrr]
    return [RoundResult.from_comparison(number, "sft", found, "tuned") for number, found in enumerate(comparisons, start=1)]


def test_a_round_is_read_from_its_comparison() -> None:
    [result] = build_history(0.6)
    assert result.tuned == {"hit1": None, "hit3": 0.6, "hit10": None, "mrr": 0.6}
    assert (result.question["mrr"], result.base["mrr"], result.num_questions) == (0.5, 0.4, 50)


def test_the_best_round_has_the_highest_mrr_and_of_equals_is_the_first() -> None:
    assert choose_best(build_history(0.5, 0.7, 0.6)).number == 2
    assert choose_best(build_history(0.5, 0.7, 0.7)).number == 2


def test_the_table_has_the_question_the_base_model_and_each_round() -> None:
    lines = format_history(build_history(0.6, 0.7)).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["question", "base", "round", "round"]
    assert lines[-1].split() == ["round", "2", "sft", "-", "0.700", "-", "0.700"]


def test_the_page_shows_the_figure_and_the_same_numbers() -> None:
    page = build_page(build_history(0.6, 0.7))
    assert "<svg" in page
    assert "0.700" in page
    assert "Round 2 has the" in page
