"""Messages of the package: on standard output of the moment, once, and warnings beside it."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime

import pytest

import drag_ray
from drag_ray.messages import about, format_json

_logger = logging.getLogger("drag_ray.tested")


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The logger of the package as in a program that has done nothing yet."""
    logger = logging.getLogger("drag_ray")
    handlers, level, propagates = logger.handlers, logger.level, logger.propagate
    logger.handlers, logger.propagate = [], True
    logger.setLevel(logging.NOTSET)
    yield logger
    logger.handlers, logger.propagate = handlers, propagates
    logger.setLevel(level)


def test_messages_are_records_until_they_are_shown(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    _logger.info("before")
    drag_ray.show_messages()
    drag_ray.show_messages()
    _logger.info("after, 100 %")
    _logger.warning("damaged")
    assert capsys.readouterr() == ("after, 100 %\n", "damaged\n")


def test_who_has_set_a_level_is_told_no_more(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logger.setLevel(logging.WARNING)
    drag_ray.show_messages()
    _logger.info("done")
    assert capsys.readouterr() == ("", "")


def test_a_library_that_sets_up_the_root_logger_has_no_line_shown_twice() -> None:
    program = (
        "import logging, drag_ray; drag_ray.show_messages(); logging.basicConfig(); logging.getLogger('drag_ray.x').info('once')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("once\n", "")


def test_lines_of_json_tell_what_a_message_is_about(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAG_RAY_LOG_FORMAT", "json")
    drag_ray.show_messages()
    with about(run="mine", stage="collect"):
        with about(question="q1"):
            _logger.warning('%s says "no"\nand ends', "it")
        try:
            raise ValueError("lost")
        except ValueError as error:
            _logger.error("failed", exc_info=error)
    _logger.info("done")
    out, err = capsys.readouterr()
    warned, failed = map(json.loads, err.splitlines())
    assert datetime.fromisoformat(warned.pop("time")).tzinfo is not None
    assert warned == {
        **{"level": "WARNING", "logger": "drag_ray.tested", "message": 'it says "no"\nand ends'},
        **{"run": "mine", "stage": "collect", "question": "q1"},
    }
    assert "question" not in failed
    assert failed["error"].endswith("ValueError: lost")
    assert json.loads(out).keys() == {"time", "level", "logger", "message"}


def test_what_others_say_in_a_message_commands_no_terminal(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    drag_ray.show_messages()
    _logger.warning("the endpoint says: \x1b]0;owned\x07 \x9b31m \u202egnp.exe\n\tand more")
    assert capsys.readouterr().err == "the endpoint says: \ufffd]0;owned\ufffd \ufffd31m \ufffdgnp.exe\n\tand more\n"


def test_json_for_a_terminal_is_the_same_json() -> None:
    value = {"said": "\x1b[31m \x9b \u202e naïve 文"}
    line = format_json(value)
    assert json.loads(line) == value
    assert "naïve 文" in line
    assert not set("\x1b\x9b\u202e") & set(line)
