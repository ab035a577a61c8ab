import hashlib

from evaluation_cases import build_questions, build_rollouts

from drag_ray.evaluate.examples import Outcome, choose_examples
from drag_ray.evaluate.results import compute_results

RANKS = {"base": [1, 2, None, 4, None, 3, 1, None], "tuned": [2, 1, 3, 4, None, None, 1, 1]}


def choose(num_each):
    rollouts = build_rollouts(RANKS)
    questions = build_questions(8)
    return choose_examples(rollouts, compute_results(rollouts, questions), "base", "tuned", num_each)


def test_wins_losses_and_ties_are_all_shown():
    found = {outcome: {e.question_id for e in choose(8) if e.outcome is outcome} for outcome in Outcome}
    assert found == {Outcome.WIN: {"q1", "q2", "q7"}, Outcome.LOSS: {"q0", "q5"}, Outcome.TIE: {"q3", "q4", "q6"}}


def test_the_choice_follows_the_hash_of_the_id_and_not_the_size_of_the_change():
    expected = min(("q1", "q2", "q7"), key=lambda id: hashlib.sha256(id.encode()).digest())
    assert [e.question_id for e in choose(1) if e.outcome is Outcome.WIN] == [expected]


def test_an_example_holds_the_first_queries_and_their_ranks():
    [example] = [e for e in choose(8) if e.question_id == "q2"]
    assert (example.baseline_query, example.baseline_rank) == ("base query 2", None)
    assert (example.subject_query, example.subject_rank) == ("tuned query 2", 3)
