"""The line of progress on a terminal, in a notebook and in a log."""

import io
import logging

import pytest

from drag_ray.rollout.progress import LiveLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


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
