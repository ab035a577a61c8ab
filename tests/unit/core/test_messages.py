"""Messages of the package: on standard output of the moment, once, and warnings beside it."""

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

import drag_ray

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
