"""A line that says how far something is, on a terminal, in a notebook or in a log."""

import logging
import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from drag_ray.messages import to_displayable

_logger = logging.getLogger(__name__)

_LIVE_S, _LOG_S = 1.0, 30.0
"""seconds between two states of the line where it is written over, and in a log"""
_NOTEBOOK_STREAMS = "ipykernel."
"""where the streams of a notebook's kernel are from; they are no terminals, and know nothing but the carriage return"""


class LiveLine:
    """A line that a terminal or a notebook shows in place of its last state, and that a log gets anew now and then.

    tqdm would do for the first two alone: into a log it writes its carriage returns, and `rich.live` nothing before the end.

    Args:
        stream: where it goes; standard error by default.
        clock: the time in seconds.
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
