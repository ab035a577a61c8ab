"""Stages that are killed at random moments and started again, and what comes of them.

python benchmarks/kill_stages.py

Runs the tests that do it (`make slow` runs the same ones) and counts, by stage: kills, moves and copies of the folder before the
next start, ends whose result was compared with an undisturbed run's, and whether the test found fault. The counts are kept in
`results/kill_stages.json`. The exit status is 1 if a test has failed.
"""

import time
from collections.abc import Generator
from typing import Any

import pytest
from record import write_result

TESTS = {
    "tests/integration/collect/test_collect_faults.py::"
    "test_a_driver_that_is_killed_twenty_times_loses_and_repeats_nothing": "collect",
    "tests/integration/pipeline/test_killed_stages.py::"
    "test_a_stage_that_is_killed_twenty_times_leaves_what_an_undisturbed_one_does[process]": "process",
    "tests/integration/pipeline/test_killed_stages.py::"
    "test_a_stage_that_is_killed_twenty_times_leaves_what_an_undisturbed_one_does[format]": "format",
    "tests/integration/finetune/test_finetune_killed_driver.py::"
    "test_a_training_that_is_killed_twenty_times_takes_every_step_once_as_an_undisturbed_one_does": "finetune",
}


class KillCounter:
    """A plugin of pytest that keeps what the tests have done.

    Attributes:
        figures: by stage.
    """

    def __init__(self) -> None:
        self.figures: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Function) -> Generator[None, object, object]:
        """Count what a test does."""
        from repeated_kills import KILLS  # pytest has put the folder of the tests on the path

        KILLS.clear()
        begun, figures = time.monotonic(), {"passed": False}
        self.figures[TESTS[item.nodeid]] = figures
        try:
            result = yield
            figures["passed"] = True
            return result
        finally:
            figures |= {name: KILLS[name] for name in ("kills", "moves", "copies", "ends")}
            figures["seconds"] = round(time.monotonic() - begun)
            self.figures[TESTS[item.nodeid]] = figures

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Keep the counts; the process ends with the session (see tests/integration/conftest.py)."""
        write_result("kill_stages", self.figures)


def main() -> int:
    return int(pytest.main(["-q", "-s", *TESTS], plugins=[KillCounter()]) != 0)


if __name__ == "__main__":
    raise SystemExit(main())
