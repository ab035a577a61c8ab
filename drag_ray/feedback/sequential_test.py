"""A test of whether somebody wins more often than not, which is valid at any time, however often anybody looks.

Each voice wins with the chance p. An e-process is a bet against what is to be refuted, which cannot be expected to gain while
that holds; so the chance that it ever reaches 1 / alpha is at most alpha (Ville, Étude critique de la notion de collectif, 1939).
The bets:

- against p <= 1/2: the likelihood of all that was seen, averaged over p uniform on (1/2, 1), over that at p = 1/2;
- against p >= 1/2: its mirror;
- against each p, for the interval: averaged over p uniform on (0, 1). The p that are not refuted at alpha are a confidence
  sequence, which holds the true one at all times at once with the chance 1 - alpha.

Robbins, Statistical Methods Related to the Law of the Iterated Logarithm (1970) has such mixtures, Ramdas et al.,
Game-Theoretic Statistics and Safe Anytime-Valid Inference (2023) the words. After w wins and l losses, n in all, the first is

    sum of C(n+1, k) for k = 0 … w, over (n+1) C(n, w)

for the chance that a Beta(w+1, l+1) is above 1/2 is a sum of a binomial. All of it is counted in integers.
"""

from dataclasses import dataclass
from math import exp, lgamma, log
from typing import Literal

Decision = Literal["better", "worse", "equal"]
_BISECTIONS = 40
_MAX_VOICES = 100_000
_GROWTH = 1.02


@dataclass
class SequentialTest:
    """The state of a test, with the chance `alpha` of each kind of error; the interval within `margin` of 1/2 means that there is
    no difference worth it."""

    alpha: float
    margin: float
    wins: int = 0
    losses: int = 0
    _ways: int = 1
    """C(n, w)"""
    _tail: int = 1
    """sum of C(n+1, k) for k = 0 … w"""

    def add(self, is_win: bool) -> None:
        """Take a win or a loss into account."""
        self.wins, self.losses = self.wins + is_win, self.losses + (not is_win)
        self._ways = self._ways * self._number // (self.wins if is_win else self.losses)
        self._tail = 2 * self._tail + (self._ways if is_win else -self._ways)

    @property
    def _number(self) -> int:
        return self.wins + self.losses

    @property
    def log_e_better(self) -> float:
        """The logarithm of the e-value against p <= 1/2."""
        return log(self._tail) - self._log_density

    @property
    def log_e_worse(self) -> float:
        """The logarithm of the e-value against p >= 1/2."""
        return log(2 ** (self._number + 1) - self._tail) - self._log_density

    @property
    def _log_density(self) -> float:
        return log((self._number + 1) * self._ways)

    def decide(self) -> Decision | None:
        """The decision that can be made now; the first one that can be made at all is the one that counts."""
        if self.log_e_better >= -log(self.alpha):
            return "better"
        if self.log_e_worse >= -log(self.alpha):
            return "worse"
        low, high = 0.5 - self.margin, 0.5 + self.margin
        is_within = low * self._number < self.wins < high * self._number
        return "equal" if is_within and not (self._holds(low) or self._holds(high)) else None

    def _holds(self, chance: float) -> bool:
        """True for a chance of winning that is in the confidence sequence."""
        return self._log_density + self.wins * log(chance) + self.losses * log(1 - chance) > log(self.alpha)

    def compute_interval(self) -> tuple[float, float]:
        """The confidence sequence of p at this moment."""
        top = (self.wins + 0.5) / (self._number + 1)
        return self._find_bound(top, 0.0), self._find_bound(top, 1.0)

    def _find_bound(self, inside: float, outside: float) -> float:
        for _ in range(_BISECTIONS):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if self._holds(middle) else (inside, middle)
        return outside

    def estimate_more(self) -> int | None:
        """About how many more wins and losses lead to a decision if they go on at the rate so far; None for very many."""
        share, number = (self.wins + 1) / (self._number + 2), float(self._number)
        while number < _MAX_VOICES:
            number = max(number + 1, number * _GROWTH)
            wins, losses = share * number, (1 - share) * number
            density = lgamma(number + 2) - lgamma(wins + 1) - lgamma(losses + 1)
            ends = [0.5 - self.margin, 0.5 + self.margin]
            refuted = [density + wins * log(end) + losses * log(1 - end) <= log(self.alpha) for end in ends]
            is_equal = ends[0] < share < ends[1] and all(refuted)
            if is_equal or (number + 1) * log(2) - density >= -log(self.alpha):
                return round(number) - self._number
        return None


def to_e_value(logarithm: float) -> float:
    """The e-value of a logarithm, no larger than a number can be."""
    return exp(min(logarithm, 700.0))
