"""Windows over a list, and the order of one of them."""

import pytest

from drag_ray.recipes.v_retrver.task import apply_order, plan_windows


def test_fifty_candidates_are_ordered_in_the_windows_of_v_retrver() -> None:
    assert plan_windows(50, size=20, step=10) == [(30, 50), (20, 40), (10, 30), (0, 20)]


@pytest.mark.parametrize(
    ("num_candidates", "size", "step", "windows"),
    [
        (45, 20, 10, [(25, 45), (15, 35), (5, 25), (0, 20)]),
        (21, 20, 10, [(1, 21), (0, 20)]),
        (20, 20, 10, [(0, 20)]),
        (7, 20, 10, [(0, 7)]),
        (20, 20, 20, [(0, 20)]),
        (5, 2, 1, [(3, 5), (2, 4), (1, 3), (0, 2)]),
        (1, 20, 10, []),
        (0, 20, 10, []),
    ],
)
def test_windows_reach_the_front_whatever_the_length(
    num_candidates: int, size: int, step: int, windows: list[tuple[int, int]]
) -> None:
    assert plan_windows(num_candidates, size, step) == windows


def test_the_last_candidate_climbs_to_the_front_through_all_windows() -> None:
    candidates = list(range(50))
    for window in plan_windows(50, 20, 10):
        place = candidates.index(49) - window[0] + 1
        candidates = apply_order(candidates, window, [place])
    assert candidates == [49, *range(49)]


@pytest.mark.parametrize(
    ("order", "result"),
    [
        ([3, 1, 2], "xcabz"),
        ([2], "xbacz"),
        ([2, 2, 3, 2], "xbcaz"),
        ([0, -1, 4, 99, 3], "xcabz"),
        ([], "xabcz"),
    ],
)
def test_unknown_and_repeated_numbers_do_not_count_and_the_unnamed_keep_their_order(order: list[int], result: str) -> None:
    assert apply_order("xabcz", (1, 4), order) == list(result)
