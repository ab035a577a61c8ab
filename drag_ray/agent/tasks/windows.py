"""A long list is ordered window by window, from its end to its beginning, so that what is good climbs to the front.

As in RankGPT (Sun et al., https://arxiv.org/abs/2304.09542); in V-Retrver windows of 20 move by 10 over the first 50:
[30, 50), [20, 40), [10, 30), [0, 20).
"""

from collections.abc import Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


def plan_windows(num_candidates: int, size: int, step: int) -> list[tuple[int, int]]:
    """The windows of a list as (start, stop), 0-based and without the stop, in the order in which they are ordered.

    The last one is the front of the list, whatever the list's length; a list of `size` or fewer is one window, and one with
    nothing to order has none.

    Args:
        num_candidates: of the list.
        size: candidates of a window, at least 2.
        step: by how much the next window is nearer to the front, from 1 to `size`.
    """
    if num_candidates < 2:
        return []
    starts = [*range(num_candidates - size, 0, -step), 0]
    return [(start, min(start + size, num_candidates)) for start in starts]


def apply_order(candidates: Sequence[_Item], window: tuple[int, int], order: Sequence[int]) -> list[_Item]:
    """The list with one window of it in another order.

    Args:
        candidates: the whole list.
        window: its (start, stop).
        order: numbers of the window's candidates from 1, best first. A number counts once, numbers that no candidate has do not
            count, and candidates that are not named follow in the order that they had.
    """
    start, stop = window
    inside = list(candidates[start:stop])
    places = [number - 1 for number in dict.fromkeys(order) if 1 <= number <= len(inside)]
    named = set(places)
    places += [place for place in range(len(inside)) if place not in named]
    return [*candidates[:start], *(inside[place] for place in places), *candidates[stop:]]
