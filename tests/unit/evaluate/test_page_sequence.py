from factories import EVIDENCE, build_hits

from drag_ray.evaluate.results import build_page_sequence
from drag_ray.types import Evidence, Hit


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
