"""The running totals of a collection: what the console shows, and when too much has failed."""

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TextIO

from drag_ray.rollout.failures import check_failure_rate
from drag_ray.rollout.monitors import Watch
from drag_ray.rollout.pace import Pace

_JUDGED_FROM = 20
"""rollouts before the failure rate of a run that goes on is judged"""
_TERMINAL_S, _LOG_S = 1.0, 30.0
"""seconds between two states of the line on a terminal, and in a log"""
_CLEAR = "\r\033[K"


class LiveLine:
    """A line that a terminal shows in place of its last state, and that a log gets anew now and then.

    Args:
        stream: where it goes; standard error by default.
        clock: the time in seconds.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._is_terminal = self._stream.isatty()
        self._interval_s = _TERMINAL_S if self._is_terminal else _LOG_S
        self._shown_at = clock() - _TERMINAL_S if self._is_terminal else clock()
        self._text = self._shown = ""

    def update(self, text: str) -> None:
        """Take a new state of the line; it is shown when the last one is old enough."""
        self._text = text
        if self._clock() - self._shown_at >= self._interval_s:
            self._show()

    def say(self, message: str) -> None:
        """Print a message that stays, above the line."""
        print(f"{_CLEAR if self._is_terminal else ''}{message}", file=self._stream, flush=True)
        if self._is_terminal and self._text:
            self._show()

    def close(self) -> None:
        """Show the last state for good."""
        if self._text != self._shown or self._is_terminal:
            self._show()
        if self._is_terminal and self._text:
            print(file=self._stream, flush=True)

    def _show(self) -> None:
        self._shown, self._shown_at = self._text, self._clock()
        if not self._is_terminal:
            print(self._text, file=self._stream, flush=True)
        elif self._text:
            # A line that is wrapped cannot be written over.
            width = shutil.get_terminal_size().columns - 1
            print(_CLEAR + self._text[:width], end="", file=self._stream, flush=True)


class Progress:
    """Adds up chunk summaries, shows them, warns of a policy that collapses, and stops a run that goes wrong.

    Args:
        num_rollouts: how many are to run.
        max_failure_rate: share of failed rollouts that is borne.
        label: what the line begins with.
        stream: where the line goes; standard error by default.
        clock: the time in seconds.
    """

    def __init__(
        self,
        num_rollouts: int,
        max_failure_rate: float,
        label: str,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.totals: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._num_rollouts = num_rollouts
        self._num_done = 0
        self._max_failure_rate = max_failure_rate
        self._label = label
        self._clock = clock
        self._line = LiveLine(stream, clock)
        self._watch = Watch()
        self._pace = Pace()

    def add(self, summary: dict[str, Any]) -> None:
        """Add the summary of a chunk.

        Raises:
            TooManyFailuresError: names the share that failed and the commonest errors.
        """
        self._errors.update(summary["errors"])
        self.totals.update({name: value for name, value in summary.items() if name != "errors"})
        self._num_done += sum(summary[name] for name in ("finished", "failed", "hinted", "skipped"))
        self._pace.note(self._clock(), self._num_done, self.totals["completion_tokens"])
        self._line.update(self.describe())
        for warning in self._watch.find_new(self.totals):
            self._line.say(f"{self._label}: warning: {warning}")
        done = self.totals["finished"] + self.totals["failed"]
        if done >= _JUDGED_FROM:
            check_failure_rate(self.totals["failed"], done, self._max_failure_rate, self._errors)

    def begin_pass(self, num_pending: int) -> None:
        """Begin again with what is not finished: rollouts that an engine lost on the way were counted too early."""
        self._num_done = self._num_rollouts - num_pending
        self._pace = Pace()

    def describe(self) -> str:
        """The line: how far the run is, how fast it is, and what its rollouts, replies and queries came to."""
        totals = self.totals
        rollouts = max(1, totals["finished"] + totals["failed"])
        figures = [
            f"found {totals['found'] / rollouts:.0%}",
            f"{totals['failed']:,} failed",
            f"{totals['turns'] / rollouts:.1f} turns",
            f"{totals['invalid_replies'] / max(1, totals['turns']):.0%} invalid",
            f"{totals['zero_hit_searches'] / max(1, totals['searches']):.0%} no hit",
        ]
        if rates := self._pace.compute_rates():
            left = _format_time((self._num_rollouts - self._num_done) / rates.rollouts)
            figures = [f"{rates.rollouts:.1f}/s", f"{left} left", f"{rates.tokens:,.0f} tokens/s", *figures]
        return f"{self._label} {self._num_done:,}/{self._num_rollouts:,}: {', '.join(figures)}"

    def close(self) -> None:
        """Leave the line as it is."""
        self._line.close()


def _format_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
