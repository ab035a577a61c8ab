"""How fast a run goes of late."""

from collections import deque
from typing import NamedTuple

_WINDOW_S = 60.0
"""seconds over which the pace is taken"""
_WINDOW_ROLLOUTS = 30
"""rollouts over which it is taken at least, for as many seconds as that takes"""
_TOLD_FROM_S = 10.0
"""seconds before it is told: the first rollouts began together, and many of them end together"""


class Rates(NamedTuple):
    """Rollouts and tokens per second."""

    rollouts: float
    tokens: float


class Pace:
    """Measures a run from the first time that rollouts have ended: before that engines start, which says nothing."""

    def __init__(self) -> None:
        self._marks = deque[tuple[float, int, int]]()

    def note(self, now: float, num_rollouts: int, num_tokens: int) -> None:
        """Take the totals at a time in seconds."""
        self._marks.append((now, num_rollouts, num_tokens))
        while len(self._marks) > 2 and self._reaches(self._marks[1], _WINDOW_S):
            self._marks.popleft()

    def compute_rates(self) -> Rates | None:
        """Rates over the last minute, or the last 30 rollouts if those took longer; None while it is too early to tell."""
        if not self._marks or not self._reaches(self._marks[0], _TOLD_FROM_S):
            return None
        (begin, *first), (end, *last) = self._marks[0], self._marks[-1]
        return Rates(*((after - before) / (end - begin) for before, after in zip(first, last, strict=True)))

    def _reaches(self, mark: tuple[float, int, int], seconds: float) -> bool:
        """Whether from a mark to the last one there is enough to take rates over."""
        now, num_rollouts, _ = self._marks[-1]
        return now - mark[0] >= seconds and num_rollouts - mark[1] >= _WINDOW_ROLLOUTS
