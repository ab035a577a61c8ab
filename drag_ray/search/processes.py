"""Processes of a pool, which end with the one that asks them."""

import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """Begin a process of a pool with this: a parent that is killed cannot end its processes, which would wait for it for good."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
