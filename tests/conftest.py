"""Shared test set-up."""

import gc
import logging
import os

from hypothesis import settings

from drag_ray.messages import show_messages

# The same examples on every machine and in every run, so that what passes here passes there; `make slow` draws others each time.
settings.load_profile("ci")

# Before PyTorch and Polars are imported. Two processes of tests on two cores: threads of both would wait for each other,
# spinning, and to hand a table of a few rows from thread to thread takes longer than what is done with it.
os.environ |= {name: os.environ.get(name, "1") for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS")}

gc.disable()  # while modules are imported and tests collected, all of which stays
show_messages()
logging.getLogger("drag_ray").propagate = True  # to caplog


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: what looks for garbage, thousands of times, need not go through them."""
    gc.collect()
    gc.freeze()
    gc.enable()
