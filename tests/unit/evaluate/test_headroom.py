import pytest
from evaluation_cases import build_comparison, build_questions, build_rollouts

from drag_ray.evaluate.comparison import compute_headroom
from drag_ray.evaluate.results import compute_results

RANKS = {"question": [1, None, 5, None, 3], "base": [2, 9, None, None, 1], "tuned": [4, 2, 2, None, None]}


def test_the_best_single_policy_is_that_of_each_measure_and_the_oracle_takes_the_best_search_of_each_question():
    rooms = {room.name: room for room in build_comparison(RANKS).room}
    found = {name: (room.best_policy, room.best) for name, room in rooms.items()}
    assert found["hit_at_1"] == ("question", 1 / 5)
    assert found["hit_at_10"] == ("question", 3 / 5)
    assert found["mrr"] == ("base", pytest.approx((1 / 2 + 1 / 9 + 1) / 5))
    assert rooms["hit_at_3"].gain == pytest.approx(4 / 5 - 2 / 5)
    assert [rooms[name].oracle for name in ("hit_at_1", "hit_at_3")] == [2 / 5, 4 / 5]  # the best ranks: 1, 2, 2, none and 1
    assert rooms["mrr"].oracle == pytest.approx((1 + 1 / 2 + 1 / 2 + 1) / 5)


def test_the_question_takes_part_though_it_is_no_policy():
    policies = {name: RANKS[name] for name in ("base", "tuned")}
    results = compute_results(build_rollouts(policies), build_questions(5))
    assert compute_headroom(results, RANKS["question"]) == compute_headroom(
        compute_results(build_rollouts({**policies, "question": RANKS["question"]}), build_questions(5)), None
    )
