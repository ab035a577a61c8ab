"""Where Ray Serve's log goes, while other libraries set up theirs."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from logging.handlers import MemoryHandler


@contextmanager
def keep_targets(logger: logging.Logger) -> Generator[None]:
    """Give the handlers of a logger that pass lines on to another handler their targets again.

    vLLM sets up logging when it is imported, with `dictConfig`, which closes all handlers that there are. A `MemoryHandler` has
    no target from then on and keeps what is logged for ever: Ray Serve's, which logs a line a request, 1.7 KB each.
    """
    targets = [(handler, handler.target) for handler in logger.handlers if isinstance(handler, MemoryHandler)]
    try:
        yield
    finally:
        for handler, target in targets:
            handler.setTarget(target)
