"""Damaged files for every reader, in a child process with limits; `benchmarks/fuzz_readers.py` reads any number of them."""

from pathlib import Path

import pytest
from fuzz_readers import fuzz, read
from fuzz_seeds import build_seeds


def test_the_files_that_are_damaged_are_sound(tmp_path: Path) -> None:
    seeds = build_seeds()
    paths = {name: tmp_path / (f"document{name}" if name.startswith(".") else name) for name in seeds}
    for name, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(seeds[name][0])
    assert [name for name, path in paths.items() if not read(name, path)] == []


@pytest.mark.parametrize("num_inputs", [750, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(4 * 3600)])])
def test_no_damaged_file_raises_anything_but_our_errors(num_inputs: int) -> None:
    outcome = fuzz(num_inputs, seed=1, only=[], keep=None)
    assert (dict(outcome.failures), outcome.inputs.total()) == ({}, num_inputs)
    assert outcome.refused < num_inputs
