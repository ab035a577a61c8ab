"""Logs of a replica: they reach its file and are kept nowhere else, whatever is imported meanwhile."""

import logging
import weakref
from logging.handlers import MemoryHandler, RotatingFileHandler
from pathlib import Path

from drag_ray.serve.replica import keep_targets


def test_what_is_logged_after_all_handlers_were_closed_is_in_the_file_and_not_in_memory(tmp_path: Path) -> None:
    file = RotatingFileHandler(tmp_path / "log")
    buffer = MemoryHandler(1, target=file)  # as Ray Serve builds them
    logger = logging.Logger("of a replica", logging.INFO)
    logger.addHandler(buffer)
    logger.info("before")
    with keep_targets(logger):
        logging.shutdown([weakref.ref(buffer), weakref.ref(file)])  # what `dictConfig` does first
    for number in range(3):
        logger.info("request %d", number)
    file.close()
    assert buffer.buffer == []
    assert (tmp_path / "log").read_text().splitlines() == ["before", "request 0", "request 1", "request 2"]
