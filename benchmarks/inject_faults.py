"""Faults of the disk and of memory at each access to the files of a run, in turn, and what comes of them.

python benchmarks/inject_faults.py

Runs the tests that inject them (`make slow` runs the same ones) and counts, by area: accesses to files, kinds of faults, faults
in all, and tests in which one was answered otherwise than with a clear error or a recovery, or left something half-written that
was taken for whole. The counts are kept in `results/inject_faults.json`. The exit status is 1 if there was any such test.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Generator
from typing import Any

import pytest
from record import write_result

FILES = (
    "tests/unit/core/test_fault_injection.py",
    "tests/unit/core/test_native_reads.py",
    "tests/unit/finetune/outputs/test_checkpoints.py",
)
AREAS = {
    "a stage": "artifacts",
    "lines": "artifacts",
    "test_tables": "artifacts",
    "an index": "index",
    "test_an_index": "index",
    "a journal": "journal",
    "test_a_checkpoint_that_is_copied": "checkpoints",
    "test_an_adapter": "adapters",
    "test_a_read": "reads of native code",
}
"""What the tests are about, by how their cases or names begin."""


class FaultCounter:
    """A plugin of pytest that takes the tests which inject faults at each access, and counts the faults.

    Attributes:
        faults: kinds of faults and how many of each, by area.
        failures: tests that failed.
    """

    def __init__(self) -> None:
        self.faults: dict[str, Counter[str]] = defaultdict(Counter)
        self.failures: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Function]) -> None:
        """A test of each ninth access repeats what one of each access does."""
        items[:] = [item for item in items if _find_area(item) and _read_step(item) == 1]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Function) -> Generator[None, object, object]:
        """Count what a test injects."""
        from file_layer import INJECTED  # pytest has put the folder of the tests on the path

        INJECTED.clear()
        try:
            return (yield)
        except BaseException:
            self.failures.append(item.nodeid)
            raise
        finally:
            self.faults[_find_area(item)].update(INJECTED)

    def to_dict(self) -> dict[str, Any]:
        """The counts by area and in all."""
        areas = {
            area: {"accesses": max(faults.values()), "kinds": len(faults), "faults": faults.total(), "by_kind": dict(faults)}
            for area, faults in self.faults.items()
        }
        return {"faults": sum(area["faults"] for area in areas.values()), "failures": self.failures, "areas": areas}


def _find_area(item: pytest.Function) -> str:
    name = _read_params(item).get("case", item.name)
    return next((area for prefix, area in AREAS.items() if name.startswith(prefix)), "")


def _read_step(item: pytest.Function) -> int:
    return _read_params(item).get("step", 1)


def _read_params(item: pytest.Function) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def main() -> None:
    counter = FaultCounter()
    started = time.monotonic()
    status = pytest.main(["--quiet", "--timeout=3600", *FILES], plugins=[counter])
    write_result("inject_faults", {**counter.to_dict(), "seconds": round(time.monotonic() - started, 1)})
    raise SystemExit(status)


if __name__ == "__main__":
    main()
