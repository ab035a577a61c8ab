import ir_measures
import pytest
from evaluation_cases import build_comparison, build_questions, build_rollouts
from factories import build_hits

from drag_ray.evaluate.comparison import compute_headroom
from drag_ray.evaluate.results import compute_results

RANKS = {"question": [1, None, 5, None, 3], "base": [2, 9, None, None, 1], "tuned": [4, 2, 2, None, None]}


def test_the_oracle_takes_the_best_first_search_of_each_question():
    questions = build_questions(5)
    rooms = {room.name: room for room in compute_headroom(compute_results(build_rollouts(RANKS), questions), None)}
    best = [1, 2, 2, None, 1]
    qrels = [ir_measures.Qrel(f"q{number}", "manual.pdf:7", 1) for number in range(5)]
    run = [
        ir_measures.ScoredDoc(f"q{number}", f"{hit.file}:{hit.page_number}", hit.score)
        for number, rank in enumerate(best)
        for hit in build_hits(rank)
    ]
    measures = {"hit_at_1": ir_measures.Success @ 1, "hit_at_3": ir_measures.Success @ 3, "mrr": ir_measures.RR}
    expected = ir_measures.calc_aggregate(list(measures.values()), qrels, run)
    assert {name: rooms[name].oracle for name in measures} == {
        name: pytest.approx(expected[measure]) for name, measure in measures.items()
    }


def test_the_best_single_policy_is_that_of_each_measure():
    rooms = {room.name: room for room in build_comparison(RANKS).room}
    found = {name: (room.best_policy, room.best) for name, room in rooms.items()}
    assert found["hit_at_1"] == ("question", 1 / 5)
    assert found["hit_at_10"] == ("question", 3 / 5)
    assert found["mrr"] == ("base", pytest.approx((1 / 2 + 1 / 9 + 1) / 5))
    assert rooms["hit_at_3"].gain == pytest.approx(4 / 5 - 2 / 5)


def test_the_question_takes_part_though_it_is_no_policy():
    policies = {name: RANKS[name] for name in ("base", "tuned")}
    results = compute_results(build_rollouts(policies), build_questions(5))
    assert compute_headroom(results, RANKS["question"]) == compute_headroom(
        compute_results(build_rollouts({**policies, "question": RANKS["question"]}), build_questions(5)), None
    )
