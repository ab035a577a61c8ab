"""Counts of what clients send, in constant memory."""

import time
from array import array
from collections.abc import Callable, Hashable

_SLOTS = 2**16
_WINDOW_S = 3600.0


class HourlyCounts:
    """Counts within the hour, by names of any number.

    Names share counters where their hashes fall together, so that a count can be too high and never too low. Python's hash of
    texts has a secret of its own in each process: nobody can choose names that fall together with those of somebody else.
    `clock`: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts = array("L", bytes(_SLOTS * array("L").itemsize))
        self._begun = clock()

    def add(self, name: Hashable) -> int:
        """Count a name, and return how often it was counted in this hour."""
        if self._clock() - self._begun > _WINDOW_S:
            self._counts = array("L", bytes(_SLOTS * self._counts.itemsize))
            self._begun = self._clock()
        slot = hash(name) % _SLOTS
        self._counts[slot] += 1
        return self._counts[slot]
