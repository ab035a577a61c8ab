"""Messages of the package while it works: records of the loggers `drag_ray.*`, which a program shows as it likes.

The command line shows them as plain lines, warnings on standard error; so does who calls `show_messages`. With the environment
variable DRAG_RAY_LOG_FORMAT=json each is a line of JSON instead, with the run, the stage and the question that it is about.
"""

import json
import logging
import os
import re
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

FORMAT_VARIABLE = "DRAG_RAY_LOG_FORMAT"

_NAME = "drag_ray"
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What moves the cursor of a terminal, rings its bell, changes its colours or title, or turns the direction of writing."""
_subject: ContextVar[Mapping[str, str]] = ContextVar("subject", default=MappingProxyType({}))


def to_displayable(text: str) -> str:
    """Text for a terminal, in lines; what would do something else there than be read is replaced."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def format_json(value: Any) -> str:
    """JSON in one line, for programs and for a terminal: what `to_displayable` replaces is escaped."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


@contextmanager
def about(**names: str) -> Generator[None]:
    """Mark the messages of a block as being about this `run`, `stage` or `question`, beside what is said to be so around it."""
    token = _subject.set({**_subject.get(), **names})
    try:
        yield
    finally:
        _subject.reset(token)


class JsonFormatter(logging.Formatter):
    """A line of JSON: time (ISO 8601 in UTC), level, logger, message, what `about` names, and error where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_subject.get(),
        }
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told)


class MessageHandler(logging.StreamHandler[Any]):
    """Writes to what is standard output, or standard error, at that moment: notebooks and tests put others in their place."""

    def format(self, record: logging.LogRecord) -> str:
        """The message, with what others have said in it made displayable."""
        return to_displayable(super().format(record))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message as a line of its own."""
        self.stream = sys.stderr if record.levelno >= logging.WARNING else sys.stdout
        super().emit(record)


def show_messages() -> None:
    """Show what stages say while they work, as the command line does. Without it they are records of the logger `drag_ray`.

    Its level decides what is shown, INFO where none is set.

    Examples:
        >>> drag_ray.show_messages()
    """
    logger = logging.getLogger(_NAME)
    if any(isinstance(handler, MessageHandler) for handler in logger.handlers):
        return
    handler = MessageHandler()
    if os.environ.get(FORMAT_VARIABLE) == "json":
        handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    logger.propagate = False  # a library that sets up the root logger would have each line shown twice
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
