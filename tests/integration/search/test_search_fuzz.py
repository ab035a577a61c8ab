"""Hostile queries in a child process: no exception, no panic, no crash. `benchmarks/fuzz_queries.py` runs any number of them."""

from fuzz_queries import fuzz

NUM_QUERIES = 20_000


def test_no_query_raises_panics_or_crashes() -> None:
    result = fuzz(NUM_QUERIES, seed=1)
    assert (result["queries"], result["failures"], result["exit_code"]) == (NUM_QUERIES, {}, 0)
