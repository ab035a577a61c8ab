"""The progress of a collection: what its line says, on a terminal, in a notebook and in a log, how fast the run is, and what it
warns of."""

import io
import logging
from collections import Counter
from typing import Any

import pytest

from drag_ray.errors import TooManyFailuresError
from drag_ray.rollout.counts import COUNTS
from drag_ray.rollout.progress import MONITORS, LiveLine, Monitor, Progress, Rates, Throughput, Watch
from drag_ray.rollout.worker import SUMMARY_SCHEMA


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def build_summary(errors: tuple[str, ...] = (), **counts: int) -> dict[str, Any]:
    return {**dict.fromkeys(SUMMARY_SCHEMA.names, 0), **counts, "errors": list(errors)}


def test_the_line_says_how_a_run_goes(capsys: pytest.CaptureFixture[str]) -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(1000, 0.2, "collecting", stream, clock)
    counts = {"finished": 95, "failed": 5, "found": 30, "turns": 250, "invalid_replies": 50, "searches": 150}
    for _ in range(2):
        clock.now += 10
        progress.add(build_summary(("x",) * 5, **counts, zero_hit_searches=6, completion_tokens=12_000))
    progress.close()
    assert capsys.readouterr().out == "collecting: the first rollouts ended after 10 s\n"
    assert stream.getvalue() == (
        "collecting 200/1,000: 10.0/s, 1:20 left, 1,200 tokens/s, found 30%, 10 failed, 2.5 turns, 20% invalid, 4% no hit\n"
    )


def test_nothing_is_said_of_the_time_left_at_first() -> None:
    clock = Clock()
    progress = Progress(1000, 0.2, "collecting", io.StringIO(), clock)
    clock.now += 300  # the engine starts
    progress.add(build_summary(finished=5))
    assert progress.describe() == "collecting 5/1,000: found 0%, 0 failed, 0.0 turns, 0% invalid, 0% no hit"


def test_a_second_pass_counts_what_is_left() -> None:
    clock = Clock()
    progress = Progress(20, 0.2, "collecting", io.StringIO(), clock)
    progress.add(build_summary(finished=20))
    progress.begin_pass(4)
    clock.now += 300  # the engine starts again
    progress.add(build_summary(finished=1))
    assert "/s" not in progress.describe()
    assert progress.describe().startswith("collecting 17/20: ")


def test_a_collapse_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(1000, 0.2, "collecting", io.StringIO(), Clock())
    for _ in range(3):
        progress.add(build_summary(finished=50, turns=100, searches=100, repeated_queries=80))
    progress.close()
    assert capsys.readouterr().err.count("collecting: warning: 80% of 100 queries repeat an earlier one of their rollout") == 1


def test_a_run_that_goes_wrong_is_stopped_with_its_commonest_errors() -> None:
    progress = Progress(100, max_failure_rate=0.2, label="test", stream=io.StringIO())
    summary = build_summary(("engine gone",) * 2, finished=8, failed=2)
    progress.add(summary)
    progress.add(summary)
    with pytest.raises(TooManyFailuresError, match=r"(?s)5 of 21 rollouts failed.*5 x engine gone"):
        progress.add(build_summary(("engine gone",), failed=1))
    progress.close()


def add_steadily(throughput: Throughput, start_s: int, num_steps: int, step_s: int, size: int, num_before: int = 0) -> int:
    """Add `size` rollouts of 50 tokens every `step_s` seconds from `start_s` on; returns how many there are then."""
    for step in range(num_steps):
        num_rollouts = num_before + (step + 1) * size
        throughput.add(start_s + step * step_s, num_rollouts, 50 * num_rollouts)
    return num_before + num_steps * size


@pytest.mark.parametrize(
    ("num_steps", "step_s", "size", "is_told"),
    [
        (5, 30, 7, False),  # 28 rollouts after the first end
        (6, 30, 7, True),
        (40, 1, 8, True),
        (10, 1, 100, False),  # a burst of 9 seconds
        (11, 1, 100, True),
    ],
)
def test_a_throughput_needs_some_tens_of_rollouts_and_some_seconds(num_steps: int, step_s: int, size: int, is_told: bool) -> None:
    throughput = Throughput()
    add_steadily(throughput, 0, num_steps, step_s, size)
    assert throughput.compute_rates() == (Rates(size / step_s, 50 * size / step_s) if is_told else None)


def test_the_start_of_the_engines_is_no_part_of_the_throughput() -> None:
    throughput = Throughput()
    add_steadily(throughput, start_s=3600, num_steps=20, step_s=1, size=4)
    assert throughput.compute_rates() == Rates(4, 200)


def test_a_fast_run_is_told_by_its_last_minute() -> None:
    throughput = Throughput()
    num_rollouts = add_steadily(throughput, 0, num_steps=100, step_s=1, size=10)
    add_steadily(throughput, 100, num_steps=61, step_s=1, size=2, num_before=num_rollouts)
    assert throughput.compute_rates() == Rates(2, 100)


def test_a_slow_run_is_told_by_its_last_rollouts() -> None:
    throughput = Throughput()
    num_rollouts = add_steadily(throughput, 0, num_steps=100, step_s=1, size=10)
    add_steadily(throughput, 200, num_steps=31, step_s=100, size=1, num_before=num_rollouts)
    assert throughput.compute_rates() == Rates(0.01, 0.5)


@pytest.mark.parametrize("monitor", MONITORS, ids=lambda monitor: monitor.part)
def test_each_monitor_warns_once_when_its_share_passes_its_limit(monitor: Monitor) -> None:
    watch = Watch()
    at_limit = round(monitor.limit * 1000)
    assert list(watch.find_new(Counter({monitor.whole: 1000, monitor.part: at_limit}))) == []
    [warning] = watch.find_new(Counter({monitor.whole: 1000, monitor.part: at_limit + 10}))
    assert warning.startswith(f"{monitor.limit + 0.01:.0%} of 1,000 ")
    assert monitor.part in warning
    assert list(watch.find_new(Counter({monitor.whole: 1000, monitor.part: 1000}))) == []


def test_a_few_are_not_judged() -> None:
    assert list(Watch().find_new(Counter({"turns": 49, "invalid_replies": 49}))) == []
    assert len(list(Watch().find_new(Counter({"turns": 50, "invalid_replies": 50})))) == 1


def test_monitors_watch_what_is_counted() -> None:
    assert {name for monitor in MONITORS for name in (monitor.part, monitor.whole)} <= set(COUNTS)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_now_and_then_and_no_carriage_returns() -> None:
    stream, clock = io.StringIO(), Clock()
    line = LiveLine(stream, clock)
    for number in range(1, 121):
        clock.now += 1
        line.update(f"state {number}")
    line.close()
    assert stream.getvalue() == "state 30\nstate 60\nstate 90\nstate 120\n"


def test_a_log_gets_the_last_state_of_a_short_run_once() -> None:
    stream = io.StringIO()
    line = LiveLine(stream, Clock())
    line.update("first")
    line.update("last")
    line.close()
    assert stream.getvalue() == "last\n"


def test_nothing_is_shown_of_a_run_without_rollouts() -> None:
    for stream in (io.StringIO(), Terminal()):
        LiveLine(stream, Clock()).close()
        assert stream.getvalue() == ""


def test_a_terminal_shows_one_line_that_fits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream, clock = Terminal(), Clock()
    line = LiveLine(stream, clock)
    for number in range(5):
        line.update(f"state {number} " + "x" * 50)
        clock.now += 0.5
    line.say("a warning", logging.WARNING)
    line.close()
    states = stream.getvalue().split("\r\033[K")
    # Two states a second are half too many; the line makes room for the warning and comes again, as at the end.
    assert [state[:7] for state in states[1:]] == ["state 0", "state 2", "state 4", "", "state 4", "state 4"]
    assert capsys.readouterr().err == "a warning\n"
    assert all(len(state.rstrip("\n")) <= 19 for state in states)
    assert stream.getvalue().endswith("\n")


def test_a_notebook_shows_one_line_in_place_of_the_last_one(capsys: pytest.CaptureFixture[str]) -> None:
    class OutStream(io.StringIO):
        """As `ipykernel.iostream.OutStream`: no terminal, and nothing but the carriage return is obeyed."""

    OutStream.__module__ = "ipykernel.iostream"
    stream, clock = OutStream(), Clock()
    line = LiveLine(stream, clock)
    line.update("a long state " + "x" * 200)
    clock.now += 2
    line.update("short")
    line.say("said")
    line.close()
    long, short, cleared, again, last = stream.getvalue().removeprefix("\r\r").split("\r")[0::2]
    assert (long, short, cleared, again, last) == ("a long state " + "x" * 200, "short", "", "short", "short\n")
    assert capsys.readouterr().out == "said\n"
