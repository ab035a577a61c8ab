"""The line of a collection: on a terminal, in a log, and what it says."""

import io
from typing import Any

import pytest

from drag_ray.errors import TooManyFailuresError
from drag_ray.rollout.progress import LiveLine, Progress
from drag_ray.rollout.worker import SUMMARY_SCHEMA


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def build_summary(errors: tuple[str, ...] = (), **counts: int) -> dict[str, Any]:
    return {**dict.fromkeys(SUMMARY_SCHEMA.names, 0), **counts, "errors": list(errors)}


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


def test_a_terminal_shows_one_line_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream, clock = Terminal(), Clock()
    line = LiveLine(stream, clock)
    for number in range(5):
        line.update(f"state {number} " + "x" * 50)
        clock.now += 0.5
    line.say("a warning")
    line.close()
    states = stream.getvalue().split("\r\033[K")
    # Two states a second are half too many; the warning is followed by the line again, and so is the end.
    assert [state[:7] for state in states[1:]] == ["state 0", "state 2", "state 4", "a warni", "state 4", "state 4"]
    assert all(len(state.rstrip("\n")) <= 19 for state in states)
    assert stream.getvalue().endswith("\n")


def test_the_line_says_how_a_run_goes() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(1000, 0.2, "collecting", stream, clock)
    counts = {"finished": 95, "failed": 5, "found": 30, "turns": 250, "invalid_replies": 50, "searches": 150}
    for _ in range(2):
        clock.now += 10
        progress.add(build_summary(("x",) * 5, **counts, zero_hit_searches=6, completion_tokens=12_000))
    progress.close()
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


def test_a_collapse_is_said_once() -> None:
    stream = io.StringIO()
    progress = Progress(1000, 0.2, "collecting", stream, Clock())
    for _ in range(3):
        progress.add(build_summary(finished=50, turns=100, searches=100, repeated_queries=80))
    progress.close()
    assert stream.getvalue().count("collecting: warning: 80% of 100 queries repeat an earlier one of their rollout") == 1


def test_a_run_that_goes_wrong_is_stopped_with_its_commonest_errors() -> None:
    progress = Progress(100, max_failure_rate=0.2, label="test", stream=io.StringIO())
    summary = build_summary(("engine gone",) * 2, finished=8, failed=2)
    progress.add(summary)
    progress.add(summary)
    with pytest.raises(TooManyFailuresError, match=r"(?s)5 of 21 rollouts failed.*5 x engine gone"):
        progress.add(build_summary(("engine gone",), failed=1))
    progress.close()
