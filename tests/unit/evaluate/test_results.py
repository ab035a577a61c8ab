import dataclasses
import json
import random
import time

import ir_measures
import pytest
from factories import (
    EVIDENCE,
    asked_at,
    build_answer,
    build_call,
    build_hits,
    build_question,
    build_search,
    build_trajectory,
    build_turn,
)

from drag_ray.errors import DataError
from drag_ray.evaluate.measures import build_measures
from drag_ray.evaluate.question_result import NO_TRAJECTORY, ToolUse, to_line, to_result
from drag_ray.evaluate.results import build_page_sequence, compute_result, compute_results, find_question_ranks
from drag_ray.types import Evidence, Hit, StopReason


def test_values_of_a_rollout_that_succeeds_late():
    turns = (build_turn(), build_search(evidence_rank=8), build_search(evidence_rank=2), build_answer("340 rpm"))
    result = compute_result(build_trajectory(*turns))
    assert (result.usage.num_iterations, result.searches.num_searches, result.num_format_errors) == (4, 2, 1)
    assert (result.searches.iterations_to_success, result.searches.first_search_rank, result.searches.best_rank) == (3, 8, 2)
    assert (result.is_found, result.is_first_hit, result.is_hit_at(5), result.is_hit_at(10)) == (True, False, False, True)
    assert result.reciprocal_rank == 1 / 8
    assert result.usage.num_completion_tokens == 8
    assert result.answer.anls == 1.0


def test_calls_are_summed_by_tool_and_measured_where_a_policy_calls_one():
    calls = (build_call(), build_call("read_page", tool_s=2.0), build_call(tool_error="no file"))
    cited = build_answer(citations=(EVIDENCE, Evidence("b.pdf", 2)))
    result = compute_result(build_trajectory(*calls, build_search(evidence_rank=1), cited))
    assert result.usage.tool_uses == (ToolUse("grep", 2, 1, 0.5), ToolUse("read_page", 1, 0, 2.0))
    assert result.answer.page_citation.f1 == pytest.approx(2 / 3)
    assert to_result(json.loads(json.dumps(to_line(result)))) == result  # as it is written and read
    plain = compute_result(build_trajectory(build_search(evidence_rank=1), build_answer()))
    by_name = {measure.name: measure for measure in build_measures({"tuned": [result], "base": [plain]})}
    grep = [by_name[f"{name}_of_grep"] for name in ("calls", "failed_calls", "seconds")]
    assert [measure.compute(result) for measure in grep] == [2, 0.5, 0.5]
    assert [measure.compute(plain) for measure in grep] == [0, None, None]
    assert not any("_of_" in measure.name for measure in build_measures({"base": [plain]}))


def test_a_failed_rollout_has_found_nothing_whatever_it_did_before():
    turns = (build_search(evidence_rank=1), build_answer(citations=(EVIDENCE,)))
    result = compute_result(build_trajectory(*turns, error="engine stopped", stop_reason=StopReason.ERROR))
    assert (result.is_found, result.searches.first_search_rank, result.searches.best_rank, result.reciprocal_rank) == (
        False,
        None,
        None,
        0.0,
    )
    assert (result.answer.anls, result.answer.page_citation.f1, result.error) == (0.0, 0.0, "engine stopped")
    assert (result.count_shown(), result.count_compared(), result.searches.sequence_rank) == (0, 3, None)


def test_a_rollout_without_search_has_found_nothing():
    result = compute_result(build_trajectory(build_answer()))
    assert (result.is_found, result.is_first_hit, result.searches.num_searches, result.reciprocal_rank) == (False, False, 0, 0.0)


def test_a_failed_first_search_stays_the_first_search():
    turns = (build_search(error="syntax", hits=()), build_search(evidence_rank=1))
    result = compute_result(build_trajectory(*turns))
    assert (result.searches.first_search_rank, result.searches.num_failed_searches, result.searches.iterations_to_success) == (
        None,
        1,
        2,
    )


def test_pages_are_counted_over_all_searches():
    again = tuple(dataclasses.replace(hit, page_number=hit.page_number + 1) for hit in build_hits(None))
    turns = (build_turn(), build_search(evidence_rank=8), build_search(evidence_rank=None, hits=again), build_answer())
    result = compute_result(build_trajectory(*turns))
    assert result.searches.shown_by_turn == (0, 3, 4, 4)
    assert [result.count_shown(turn) for turn in (0, 1, 2, 3, 9)] == [4, 0, 3, 4, 4]
    assert [result.count_compared(turn) for turn in (0, 1, 2, 3, 9)] == [4, 3, 3, 4, 4]
    assert result.searches.sequence_rank == 8  # the second search showed page 4 before its turn; 5, 6 and 7 are between
    assert (result.is_met_within(7), result.is_met_within(8)) == (False, True)


def test_no_more_pages_are_compared_than_rankings_hold():
    rankings = [tuple(dataclasses.replace(hit, file=f"{number}.pdf") for hit in build_hits(None)) for number in range(5)]
    searches = [build_search(hits=hits) for hits in rankings]
    result = compute_result(build_trajectory(*searches, build_search(evidence_rank=1)))
    assert (result.count_shown(), result.count_compared(), result.searches.sequence_rank, result.is_found) == (18, 10, None, True)


def test_a_cited_file_may_have_a_name_that_looks_the_same():
    evidence = Evidence("U\u0308bersicht.pdf", 3)
    question = build_question(evidence=(evidence,))
    cited = (Evidence("./Übersicht.pdf", 3),)
    result = compute_result(build_trajectory(build_search(), build_answer(citations=cited), question=question))
    assert (result.answer.page_citation.f1, result.answer.document_citation.f1) == (1.0, 1.0)


def test_citations_count_pages_and_documents_apart():
    evidence = (Evidence("a.pdf", 1), Evidence("b.pdf", 2))
    cited = (Evidence("a.pdf", 9), Evidence("b.pdf", 2))
    question = build_question(evidence=evidence)
    result = compute_result(build_trajectory(build_search(), build_answer(citations=cited), question=question))
    assert (result.answer.page_citation.f1, result.answer.document_citation.f1) == (0.5, 1.0)


def test_anls_does_not_apply_without_gold_answers():
    assert compute_result(build_trajectory(build_answer(), question=build_question(answers=()))).answer.anls is None


def test_ranks_and_measures_of_several_evidence_pages_agree_with_ir_measures_on_random_rankings():
    generator = random.Random(6)
    qrels, run, results = [], [], []
    for number in range(100):
        evidence = tuple(Evidence("other.pdf", page) for page in generator.sample(range(1, 16), generator.randint(1, 12)))
        question = build_question(id=f"q{number}", evidence=evidence)
        hits = tuple(Hit("other.pdf", page, rank, -rank) for rank, page in enumerate(generator.sample(range(1, 16), 10), start=1))
        first = next((hit.rank for hit in hits if hit.page in evidence), None)
        results.append(compute_result(build_trajectory(build_search(evidence_rank=first, hits=hits), question=question)))
        qrels += [ir_measures.Qrel(question.id, str(page.page_number), 1) for page in evidence]
        run += [ir_measures.ScoredDoc(question.id, str(hit.page_number), hit.score) for hit in hits]
    cutoffs = (1, 3, 5, 10)
    for metric in ir_measures.iter_calc([ir_measures.nDCG @ k for k in cutoffs], qrels, run):
        result = results[int(metric.query_id[1:])]
        assert result.compute_ndcg(metric.measure["cutoff"]) == pytest.approx(metric.value, abs=1e-9)
    for metric in ir_measures.iter_calc([ir_measures.R @ k for k in cutoffs], qrels, run):
        result = results[int(metric.query_id[1:])]
        assert result.compute_recall(metric.measure["cutoff"]) == pytest.approx(metric.value, abs=1e-9)
    for metric in ir_measures.iter_calc([ir_measures.Success @ k for k in cutoffs], qrels, run):
        assert results[int(metric.query_id[1:])].is_hit_at(metric.measure["cutoff"]) == metric.value
    for metric in ir_measures.iter_calc([ir_measures.RR], qrels, run):
        assert results[int(metric.query_id[1:])].reciprocal_rank == pytest.approx(metric.value)


def test_measures_of_recall_are_there_where_questions_have_several_evidence_pages():
    pages = (Evidence("other.pdf", 2), Evidence("other.pdf", 5))
    one, two = build_question(id="q1"), build_question(id="q2", evidence=pages)
    results = compute_results({"base": [build_trajectory(build_search(), question=q) for q in (one, two)]}, [one, two])
    measures = {measure.name: measure for measure in build_measures(results)}
    values = [measures[name].compute(results["base"][1]) for name in ("hit_at_3", "recall_at_3", "all_at_3", "all_at_5")]
    assert values == [0.0, 0.5, 0.0, 1.0]  # Hit@3 is of the recorded rank, which is none here
    alone = build_measures({"base": results["base"][:1]})
    assert not {"recall_at_3", "all_at_3"} & {measure.name for measure in alone}


def test_empty_repeated_partial_and_unreadable_replies_are_counted():
    turns = (
        build_search("Rotor  speed", partial_search=True),
        build_turn(),
        build_search("rotor speed"),
        build_search(" "),
        build_answer(),
    )
    result = compute_result(build_trajectory(*turns))
    rates = {m.name: m.compute(result) for m in build_measures({"base": [result]})}
    names = ("empty_queries", "repeated_queries", "partial_searches", "unreadable_replies")
    assert [rates[name] for name in names] == [1 / 3, 1 / 3, 1 / 3, 1 / 5]
    silent = compute_result(build_trajectory(build_answer()))
    assert [m.compute(silent) for m in build_measures({"base": [silent]}) if m.name == "empty_queries"] == [None]


def test_results_follow_the_questions_and_keep_those_without_rollout():
    questions = [build_question(id="q1"), build_question(id="q2"), build_question(id="q3")]
    rollouts = [build_trajectory(build_search(evidence_rank=1), question=question) for question in (questions[2], questions[0])]
    results = compute_results({"base": rollouts}, questions)["base"]
    assert [result.question_id for result in results] == ["q1", "q2", "q3"]
    assert [result.error for result in results] == ["", NO_TRAJECTORY, ""]
    assert not results[1].is_found


@pytest.mark.parametrize(
    ("rollouts", "message"),
    [
        ([], "no trajectories"),
        ([build_trajectory(build_search()), build_trajectory(build_search())], "second trajectory"),
        ([build_trajectory(build_search(), question_id="q9")], "'q9' is not among"),
        ([build_trajectory(build_search(), evidence=(Evidence("x.pdf", 1),))], "evidence is not that of"),
    ],
)
def test_trajectories_that_do_not_belong_to_the_questions_are_refused(rollouts, message):
    with pytest.raises(DataError, match=message):
        compute_results({"base": rollouts}, [build_question()])


@pytest.mark.parametrize("field", [{"top_k": 4}, {"depth": 20}, {"index_fingerprint": "other"}])
def test_policies_with_other_search_settings_are_refused(field):
    rollouts = {"base": [build_trajectory(build_search())], "tuned": [build_trajectory(build_search(), **field)]}
    with pytest.raises(DataError, match="cannot be compared"):
        compute_results(rollouts, [build_question()])


@pytest.mark.seconds
def test_thousands_of_questions_take_less_than_a_second():
    questions = [build_question(id=f"q{number}", answers=()) for number in range(2000)]
    rollouts = [build_trajectory(build_search(evidence_rank=2), build_answer(), question=question) for question in questions]
    started = time.process_time()
    compute_results({"base": rollouts}, questions)
    assert time.process_time() - started < 1.0


def test_what_the_question_finds_is_known_from_any_policy_that_searched_it():
    questions = [build_question(id=f"q{number}") for number in range(3)]
    asked = [{"question_hits": build_hits(rank), "question_rank": rank} for rank in (4, None, 2)]
    base = [build_trajectory(question=question, **fields) for question, fields in zip(questions, asked, strict=True)]
    broken = [build_trajectory(question=question, error="engine stopped") for question in questions[:2]]
    results = compute_results({"broken": broken, "base": base}, questions)
    assert find_question_ranks(results) == [4, None, 2]
    assert find_question_ranks({"broken": results["broken"]}) is None


def test_of_a_list_that_was_ordered_window_by_window_the_last_order_counts() -> None:
    ordered = build_trajectory(build_search("[1, 2]", 5), build_search("[2, 1]", 2), **asked_at(7), task="rerank")
    result = compute_result(ordered)
    assert (
        result.searches.first_search_rank,
        result.searches.best_rank,
        result.searches.sequence_rank,
        result.question_rank,
    ) == (2, 2, 2, 7)
    assert (result.searches.iterations_to_success, result.searches.num_searches, result.searches.evidence_ranks) == (2, 2, (2,))


def test_a_list_whose_order_nobody_could_read_stays_as_it_was() -> None:
    result = compute_result(build_trajectory(build_turn(), **asked_at(3), task="rerank"))
    assert (result.searches.falls_back, result.searches.first_search_rank, result.is_first_hit) == (True, 3, True)


def build_ranking(*numbers):
    return tuple(Hit("a.pdf", number, rank, 1.0) for rank, number in enumerate(numbers, start=1))


def list_numbers(sequence):
    return [page.page_number for page in sequence.pages]


def test_one_search_has_its_ranking_for_a_sequence():
    sequence = build_page_sequence([build_hits(4)], top_k=3)
    assert sequence.shown_by_turn == (3,)
    assert [sequence.find_rank({EVIDENCE}, depth) for depth in (3, 4, 10)] == [None, 4, 4]


def test_pages_are_met_once_in_the_order_in_which_they_are_shown():
    rankings = [build_ranking(1, 2, 3, 4, 5), (), build_ranking(2, 9, 4), build_ranking(3, 1)]
    sequence = build_page_sequence(rankings, top_k=2)
    assert sequence.shown_by_turn == (2, 2, 3, 4)
    assert list_numbers(sequence) == [1, 2, 9, 3, 4, 5]  # of page 4 the first search's rank counts, for no search showed it


def test_a_turn_that_found_nothing_leaves_the_first_ranking_to_the_next():
    sequence = build_page_sequence([(), build_ranking(7, 8, 9)], top_k=2)
    assert (list_numbers(sequence), sequence.shown_by_turn) == ([7, 8, 9], (0, 2))


def test_the_best_of_several_evidence_pages_counts():
    sequence = build_page_sequence([build_ranking(1, 2, 3)], top_k=1)
    assert sequence.find_rank({Evidence("a.pdf", 3), Evidence("a.pdf", 2)}, depth=10) == 2


def test_a_rollout_without_search_has_no_pages():
    sequence = build_page_sequence([(), ()], top_k=3)
    assert (sequence.pages, sequence.shown_by_turn, sequence.find_rank({EVIDENCE}, 10)) == ((), (0, 0), None)
