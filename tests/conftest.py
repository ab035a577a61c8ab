"""Shared test set-up."""

import gc
import logging
import os

from hypothesis import settings

from drag_ray.messages import show_messages

# The same examples on every machine and in every run, so that what passes here passes there; `make slow` draws others each time.
settings.load_profile("ci")

# Before PyTorch is imported. Two processes of tests on two cores: threads of both would wait for each other, spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")

show_messages()
logging.getLogger("drag_ray").propagate = True  # to caplog


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: what looks for garbage, thousands of times, need not go through them."""
    gc.collect()
    gc.freeze()
