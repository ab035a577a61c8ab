import pytest
from evaluation_cases import build_comparison, build_searching


def test_success_by_turn_is_that_computed_by_hand():
    comparison = build_searching()
    assert list(comparison.turns) == ["base"]
    first, second = comparison.turns["base"]
    assert (first.turn, first.num_pages, second.turn, second.num_pages) == (1, 3, 2, 5)
    shares = [(row.success, row.first_search, row.question) for row in (first, second)]
    assert shares == [pytest.approx((1 / 3, 1 / 3, 1 / 3)), pytest.approx((2 / 3, 1 / 3, 2 / 3))]
    assert (second.difference, second.low, second.high) == (0, 0, 0)


def test_the_last_turn_is_success_at_equal_pages():
    comparison = build_searching()
    row = comparison.row("success_at_equal_pages")
    assert row.metrics["base"].value == pytest.approx(comparison.turns["base"][-1].success)


def test_who_searches_once_has_no_later_turns():
    assert build_comparison({"base": [1, None], "tuned": [2, 3]}).turns == {}


def test_the_question_need_not_be_among_the_policies():
    assert build_searching("other").turns == build_searching("question").turns


def test_a_question_that_nobody_searched_is_not_compared_with():
    [turns] = build_searching("other", knows_question=False).turns.values()
    assert [(row.question, row.difference, row.low) for row in turns] == [(None, None, None)] * 2
    assert turns[1].first_search == pytest.approx(1 / 3)
