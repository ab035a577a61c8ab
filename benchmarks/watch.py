"""Looking at something again and again while a benchmark runs."""

import threading
from typing import Self


class Watch:
    """Calls `look` every `interval_s` seconds in a thread, from the beginning of a `with` block to its end."""

    interval_s = 1.0

    def look(self) -> None:
        """Look once; a subclass notes the result."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self.interval_s):
            self.look()
