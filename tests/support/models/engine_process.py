"""A process for an engine, which does not end well inside one that goes on."""

import multiprocessing
from collections.abc import Callable, Generator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import psutil


@contextmanager
def open_process(target: Callable[..., None], *arguments: Any) -> Generator[Connection]:
    """The connection to a process that has called `target`, which was given its other end last. It is killed in the end with all
    that it started."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=target, args=(*arguments, there))
    process.start()
    there.close()
    try:
        yield here
    finally:
        for child in psutil.Process(process.pid).children(recursive=True) if process.is_alive() else ():
            child.kill()
        process.kill()
        process.join()


def run_in_process(target: Callable[..., None], *arguments: Any) -> Any:
    """The object that `target` sends from a process of its own."""
    with open_process(target, *arguments) as connection:
        return connection.recv()
