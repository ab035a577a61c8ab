"""What the package says while it works: records of the loggers `drag_ray.*`, which a program shows as it likes.

The command line shows them as plain lines, warnings on standard error; so does who calls `show_messages`.
"""

import logging
import sys
from typing import Any

_NAME = "drag_ray"


class MessageHandler(logging.StreamHandler[Any]):
    """Writes to what is standard output, or standard error, at that moment: notebooks and tests put others in their place."""

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
    logger.addHandler(MessageHandler())
    logger.propagate = False  # a library that sets up the root logger would have each line shown twice
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
