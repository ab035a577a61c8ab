"""Team-draft interleaving of two rankings (Radlinski, Kurup and Joachims, How Does Clickthrough Data Reflect Retrieval Quality?,
CIKM 2008): both pick pages in turns, a coin says who picks first of each two, and a page that is opened counts for who picked it.

Pages with which both rankings begin, at the same ranks, belong to neither, and tell nothing of the two (Chapelle et al.,
Large-Scale Validation and Analysis of Interleaved Search Evaluation, TOIS 2012).
"""

from collections.abc import Sequence
from itertools import takewhile
from random import Random
from typing import TypeVar

T = TypeVar("T")
CHAMPION_TEAM, CHALLENGER_TEAM, NO_TEAM = "A", "B", "-"


def interleave(champion: Sequence[T], challenger: Sequence[T], number: int, random: Random) -> tuple[list[T], str]:
    """The first `number` items of both rankings together, each once, and the letter of its team for each.

    Where one ranking is at its end, what the other still has belongs to no team.
    """
    shared = [item for item, _ in takewhile(lambda pair: pair[0] == pair[1], zip(champion, challenger, strict=False))]
    shown = dict.fromkeys(shared[:number], NO_TEAM)
    rankings = {CHAMPION_TEAM: champion, CHALLENGER_TEAM: challenger}
    while len(shown) < number:
        for team in random.sample((CHAMPION_TEAM, CHALLENGER_TEAM), 2):
            left = {name: next((item for item in ranking if item not in shown), None) for name, ranking in rankings.items()}
            if None in left.values() or len(shown) >= number:
                rest = [item for item in (*champion, *challenger) if item not in shown][: number - len(shown)]
                shown |= dict.fromkeys(rest, NO_TEAM)
                return list(shown), "".join(shown.values())
            item = left[team]
            assert item is not None, "looked at above"
            shown[item] = team
    return list(shown), "".join(shown.values())
