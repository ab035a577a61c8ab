"""A process for an engine, which does not end well inside one that goes on."""

import multiprocessing
from collections.abc import Callable
from typing import Any

import psutil


def run_in_process(target: Callable[..., None], *arguments: Any) -> Any:
    """What `target` sends through the connection that it is given last, from a process that is killed with all it started."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=target, args=(*arguments, sender))
    process.start()
    sender.close()
    sent = receiver.recv()
    for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()
    process.kill()
    process.join()
    return sent
