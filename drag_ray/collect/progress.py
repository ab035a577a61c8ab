"""The running totals of a collection: what the console shows, and when too much has failed."""

from collections import Counter
from typing import Any

from tqdm import tqdm

from drag_ray.errors import TooManyFailuresError

_JUDGED_FROM = 20
"""rollouts before the failure rate is judged"""


class Progress:
    """Adds up chunk summaries, shows them, and stops a run that goes wrong.

    Args:
        num_rollouts: how many are to run.
        max_failure_rate: share of failed rollouts that is borne.
        label: what the line begins with.
    """

    def __init__(self, num_rollouts: int, max_failure_rate: float, label: str) -> None:
        self.totals: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._max_failure_rate = max_failure_rate
        self._bar = tqdm(total=num_rollouts, desc=label, unit=" rollouts", mininterval=2, smoothing=0.1)

    def add(self, summary: dict[str, Any]) -> None:
        """Add the summary of a chunk.

        Raises:
            TooManyFailuresError: names the share that failed and the commonest errors.
        """
        self._errors.update(summary["errors"])
        self.totals.update({name: value for name, value in summary.items() if name != "errors"})
        done = self.totals["num_finished"] + self.totals["num_failed"]
        self._bar.update(summary["num_finished"] + summary["num_failed"])
        self._bar.set_postfix_str(
            f"found {self.totals['num_found'] / max(1, done):.0%}, {self.totals['num_failed']} failed, "
            f"{self.totals['completion_tokens'] / max(1e-9, self._bar.format_dict['elapsed']):.0f} tokens/s",
            refresh=False,
        )
        if done >= _JUDGED_FROM and self.totals["num_failed"] > self._max_failure_rate * done:
            raise TooManyFailuresError(
                f"{self.totals['num_failed']} of {done} rollouts failed, "
                f"more than max_failure_rate {self._max_failure_rate:.0%}.\n"
                f"{self.describe_errors()}\nMend the cause and start the run again: it goes on with what has not finished."
            )

    def begin_pass(self, num_pending: int) -> None:
        """Begin again with what is not finished: rollouts that an engine lost on the way were counted too early."""
        self._bar.update(self._bar.total - num_pending - self._bar.n)

    def describe_errors(self) -> str:
        """The three commonest errors with their counts, a line each."""
        return "\n".join(f"  {count} x {error[:300]}" for error, count in self._errors.most_common(3))

    def close(self) -> None:
        self._bar.close()
