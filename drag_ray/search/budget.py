"""The budget of a query, by estimate: equal queries have equal answers, however busy the machine is.

Tantivy cannot be stopped while it answers, so what a query would cost is known before it is asked: by the terms that are
looked at and by the postings that are read. What does not fit is left out, and the answer says so.
"""

SCAN_S = 0.15e-6
"""Seconds to compare a term with a pattern. All of these are CPU times on one core of an AMD EPYC, rounded up."""
EXPANDED_S = 2e-6
"""Looking up a term that a pattern stands for."""
POSTING_S = 5e-9
"""Reading an entry of a term: that it is on a page."""
PHRASE_POSTING_S = 40e-9
"""Reading an entry of a term with its places on the page."""
HIT_S = 1e-6
"""Taking a page out of a ranking."""


class Budget:
    """The budget that is left for one query.

    Attributes:
        left_s: in seconds.
        is_exceeded: something did not fit and was left out.
    """

    def __init__(self, milliseconds: float) -> None:
        self.left_s = milliseconds / 1_000
        self.is_exceeded = False

    def spend(self, seconds: float) -> bool:
        """Take so much off, and True; if it does not fit, nothing, and False."""
        fits = seconds <= self.left_s
        self.left_s -= seconds if fits else 0.0
        self.is_exceeded |= not fits
        return fits
