"""Position curve: how likely it is that somebody looks at the page at a rank at all, whatever is on it.

A page far down is opened seldom because few look there. The model is that of positions (Richardson et al. 2007): a page is opened
if it is looked at, which depends on its rank alone, and is worth it. Without other knowledge the chance of a look is 1 / rank, as
measured on web search and used by Joachims et al., Unbiased Learning-to-Rank with Biased Feedback (WSDM 2017). Where the same
pages were shown for the same question at several ranks, which models, retrievals and experiments see to, the curve is estimated
from these alone, whose worth is equal: intervention harvesting (Agarwal et al., Estimating Position Bias without Intrusive
Interventions, WSDM 2019).
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

MIN_CHANCE = 0.1
"""No click counts for more than 1 / this: one far down would outweigh all others (clipped propensities)."""
MIN_VOICES = 30
"""Voices that must have opened pages at a rank, and at the first, of those that were shown at both, for an estimate: so that no
few of them bend the curve"""


@dataclass(frozen=True, slots=True)
class Look:
    """A page for a question (`item`) that somebody was shown."""

    voice: Hashable
    item: Hashable
    rank: int
    is_opened: bool


@dataclass(frozen=True)
class PositionCurve:
    """Chances of a look, by rank: estimated where the log shows them, 1 / rank elsewhere."""

    estimated: Mapping[int, float] = field(default_factory=dict[int, float])

    def chance(self, rank: int) -> float:
        """The chance that the page at a rank is looked at, relative to the first."""
        return max(MIN_CHANCE, self.estimated.get(rank, 1 / rank))


def estimate_curve(looks: Iterable[Look]) -> PositionCurve:
    """The curve that a log shows: of each rank, the rate at which pages were opened there over the rate at which the same pages
    were opened at rank 1. Ranks with too few voices are left to 1 / rank."""
    shown: dict[Hashable, Counter[int]] = defaultdict(Counter)
    opened: dict[Hashable, defaultdict[int, list[Hashable]]] = defaultdict(lambda: defaultdict(list))
    for look in looks:
        shown[look.item][look.rank] += 1
        if look.is_opened:
            opened[look.item][look.rank].append(look.voice)
    rates, first_rates = defaultdict[int, float](float), defaultdict[int, float](float)
    voices, first_voices = defaultdict[int, set[Hashable]](set), defaultdict[int, set[Hashable]](set)
    for item, counts in shown.items():
        for rank in counts if counts[1] else ():
            rates[rank] += len(opened[item][rank]) / counts[rank]
            first_rates[rank] += len(opened[item][1]) / counts[1]
            voices[rank].update(opened[item][rank])
            first_voices[rank].update(opened[item][1])
    known = [rank for rank in sorted(voices) if rank > 1 and min(len(voices[rank]), len(first_voices[rank])) >= MIN_VOICES]
    return PositionCurve({1: 1.0} | {rank: min(1.0, rates[rank] / first_rates[rank]) for rank in known})
