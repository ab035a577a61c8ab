"""The progress of a collection: a line on a terminal, in a notebook or in a log, and warnings when its policy collapses.

A policy that is trained on its own searches can end in loops, in copies, or in one query whatever is asked: its replies then
carry no signal. Each sign of that is a count of `counts.COUNTS` over another one, with the share above which it is worth a look.
The limits are rules of thumb. They lie above what the embedded model showed in `make demo`, which is weak and still learns: 27 %
of its replies were invalid and 1 % repetitive; 12 % of its queries repeated an earlier one, and 2 % copied the question.
"""

import logging
import shutil
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TextIO

from drag_ray.messages import to_displayable
from drag_ray.rollout.failures import check_failure_rate

_logger = logging.getLogger(__name__)

_LIVE_S, _LOG_S = 1.0, 30.0
"""seconds between two states of the line where it is written over, and in a log"""
_NOTEBOOK_STREAMS = "ipykernel."
"""where the streams of a notebook's kernel are from; they are no terminals, and know nothing but the carriage return"""


class LiveLine:
    """A line that a terminal or a notebook shows in place of its last state, and that a log gets anew now and then.

    tqdm would do for the first two alone: into a log it writes its carriage returns, and `rich.live` nothing before the end.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._is_notebook = type(self._stream).__module__.startswith(_NOTEBOOK_STREAMS)
        self._is_live = self._is_notebook or self._stream.isatty()
        self._interval_s = _LIVE_S if self._is_live else _LOG_S
        self._shown_at = clock() - _LIVE_S if self._is_live else clock()
        self._text = self._shown = ""

    def update(self, text: str) -> None:
        """Take a new state of the line; it is shown when the last one is old enough."""
        self._text = to_displayable(text)
        if self._clock() - self._shown_at >= self._interval_s:
            self._show()

    def say(self, message: str, level: int = logging.INFO) -> None:
        """Leave a message that stays, above the line."""
        if self._is_live and self._shown:
            self._write(self._clear())
        _logger.log(level, message)
        if self._is_live and self._text:
            self._show()

    def close(self) -> None:
        """Show the last state for good."""
        if self._text != self._shown or self._is_live:
            self._show()
        if self._is_live and self._text:
            self._write("\n")

    def _show(self) -> None:
        clear = self._clear()
        self._shown, self._shown_at = self._text, self._clock()
        if not self._is_live:
            self._write(f"{self._text}\n")
        elif self._text:
            # On a terminal a line that is wrapped cannot be written over.
            width = None if self._is_notebook else shutil.get_terminal_size().columns - 1
            self._write(clear + self._text[:width])

    def _clear(self) -> str:
        return f"\r{' ' * len(self._shown)}\r" if self._is_notebook else "\r\033[K"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


_FAILURES_JUDGED_FROM = 20
"""rollouts before the failure rate of a run that goes on is judged"""
_SHARES_JUDGED_FROM = 50
"""counts of the whole before a share of it is judged"""
_WINDOW_S = 60.0
"""seconds over which the throughput is taken"""
_WINDOW_ROLLOUTS = 30
"""rollouts over which it is taken at least, for as many seconds as that takes"""
_TOLD_FROM_S = 10.0
"""seconds before it is told: the first rollouts began together, and many of them end together"""


class Progress:
    """Adds up chunk summaries, shows them, warns of a policy that collapses, and stops a run that goes wrong."""

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
        self._throughput = Throughput()
        self._began, self._answered = clock(), False

    def add(self, summary: dict[str, Any]) -> None:
        """Add the summary of a chunk. Raises TooManyFailuresError: names the share that failed and the commonest errors."""
        self._errors.update(summary["errors"])
        self.totals.update({name: value for name, value in summary.items() if name != "errors"})
        if not self._answered:
            self._line.say(f"{self._label}: the first rollouts ended after {self._clock() - self._began:.0f} s")
            self._answered = True
        self._num_done += sum(summary[name] for name in ("finished", "failed", "hinted", "skipped"))
        self._throughput.add(self._clock(), self._num_done, self.totals["completion_tokens"])
        self._line.update(self.describe())
        for warning in self._watch.find_new(self.totals):
            self._line.say(f"{self._label}: warning: {warning}", logging.WARNING)
        done = self.totals["finished"] + self.totals["failed"]
        if done >= _FAILURES_JUDGED_FROM:
            check_failure_rate(self.totals["failed"], done, self._max_failure_rate, self._errors)

    def begin_pass(self, num_pending: int) -> None:
        """Begin again with what is not finished: rollouts that an engine lost on the way were counted too early."""
        self._num_done = self._num_rollouts - num_pending
        self._throughput = Throughput()

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
        if rates := self._throughput.compute_rates():
            left = _format_time((self._num_rollouts - self._num_done) / rates.rollouts)
            figures = [f"{rates.rollouts:.1f}/s", f"{left} left", f"{rates.tokens:,.0f} tokens/s", *figures]
        return f"{self._label} {self._num_done:,}/{self._num_rollouts:,}: {', '.join(figures)}"

    def close(self) -> None:
        """Leave the line as it is."""
        self._line.close()


@dataclass(frozen=True, slots=True)
class Monitor:
    """The share of `part` in `whole` that is too much above `limit`; `meaning` is what it says of the policy."""

    part: str
    whole: str
    limit: float
    meaning: str

    def compute_share(self, totals: Mapping[str, int]) -> float:
        """The share, 0 of nothing."""
        return totals[self.part] / totals[self.whole] if totals[self.whole] else 0.0


MONITORS = (
    # Loops: seq-rep-3 of Welleck et al., Neural Text Generation with Unlikelihood Training (ICLR 2020), see agent.degeneration.
    Monitor("repetitive_replies", "turns", 0.1, "replies go round in circles; lower the temperature or raise repetition_penalty"),
    # A reply without an action earns nothing: the format reward of DeepSeek-R1 (2025), see process.rewards.
    Monitor("invalid_replies", "turns", 0.5, "replies cannot be read; see agent.protocol and agent.max_tokens"),
    # Without hits a query has no rank, so all such queries of a question score the same.
    Monitor("zero_hit_searches", "searches", 0.5, "queries find no page; see search.operator and search.syntax"),
    # A query that was asked before finds what it found before: a turn is spent for nothing.
    Monitor("repeated_queries", "searches", 0.5, "queries repeat an earlier one of their rollout"),
    # The raw question is a baseline (evaluate.baselines); a policy that returns it has learned nothing.
    Monitor("question_copies", "searches", 0.5, "queries only copy the question"),
    # File names are not searchable: such a query scores by what else is in it.
    Monitor("file_name_queries", "searches", 0.1, "queries name a document file, which is not searchable"),
    # Groups whose samples are all alike give no gradient: dynamic sampling of Yu et al., DAPO (2025).
    Monitor("one_query_questions", "sampled_questions", 0.5, "questions get one and the same query from all of their rollouts"),
)


class Watch:
    """Looks at running totals and says once of each monitor that its share is too high."""

    def __init__(self) -> None:
        self._silent = list(MONITORS)

    def find_new(self, totals: Mapping[str, int]) -> Iterator[str]:
        """A warning for each monitor whose share has passed its limit since the last look."""
        for monitor in list(self._silent):
            share = monitor.compute_share(totals)
            if totals[monitor.whole] >= _SHARES_JUDGED_FROM and share > monitor.limit:
                self._silent.remove(monitor)
                yield f"{share:.0%} of {totals[monitor.whole]:,} {monitor.meaning} ({monitor.part}, limit {monitor.limit:.0%})"


class Rates(NamedTuple):
    """Rollouts and tokens per second."""

    rollouts: float
    tokens: float


class Throughput:
    """Measures a run from the first time that rollouts have ended: before that engines start, which says nothing."""

    def __init__(self) -> None:
        self._marks = deque[tuple[float, int, int]]()

    def add(self, now: float, num_rollouts: int, num_tokens: int) -> None:
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
        """True if from a mark to the last one there is enough to take rates over."""
        now, num_rollouts, _ = self._marks[-1]
        return now - mark[0] >= seconds and num_rollouts - mark[1] >= _WINDOW_ROLLOUTS


def _format_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
