"""A node is lost under each stage, or cut off from the others, or a process is killed: what is done again, and after how long.

python benchmarks/lose_nodes.py [-k EXPRESSION]

Runs tests/integration/cluster/test_lost_nodes.py (`make slow` runs the same, root is needed for its network namespaces) and keeps
what its tests measure, by stage and by what befalls the node, in `results/lost_nodes.json`, with what single tests of other files
do under `others`. With `-k`, as of pytest, what other tests have left there stays. The exit status is 1 if a test has failed.
"""

import argparse
import contextlib
import json
from typing import Any

import pytest
from record import RESULTS_DIR, write_result

NAME = "lost_nodes"
STAGES = {
    "test_documents": "index",
    "test_an_evaluation": "collect, evaluate",
    "test_tasks": "process, format",
    "test_a_training": "finetune",
    "test_an_endpoint": "serve",
}
"""The stages that tests are about, by how their names begin."""

FILE = "tests/integration/cluster/test_lost_nodes.py"
OTHERS = {
    "tests/integration/collect/test_collect_faults.py": {
        "test_an_engine_that_is_killed_is_replaced_and_nothing_is_lost": "an engine of a collection is killed"
    },
    "tests/integration/serve/test_serve_stage.py": {
        "test_requests_are_told_to_come_back_while_an_engine_is_replaced": "the engine of an endpoint is killed",
    },
    "tests/integration/serve/test_serve_faults.py": {
        "test_a_proxy_that_is_killed_comes_again_and_nobody_is_told_anything_wrong": "the proxy of an endpoint is killed",
    },
    "tests/integration/cluster/test_head_restart.py": {
        "test_an_endpoint_answers_again_when_its_head_is_back_with_its_storage": "the head of an endpoint listens again",
    },
}
"""Tests of other files that measure the same, and what befalls in them."""


class Measures:
    """A plugin of pytest that keeps the figures which tests leave.

    Attributes:
        figures: by stage and way, with `passed`.
    """

    def __init__(self, figures: dict[str, dict[str, Any]]) -> None:
        self.figures = figures

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a test has noted, and whether it has passed."""
        if report.when != "call":
            return
        file, _, test = report.location
        name, _, way = test.rstrip("]").partition("[")
        befallen = OTHERS.get(file, {}).get(name)
        stage = "others" if befallen else next(stage for prefix, stage in STAGES.items() if name.startswith(prefix))
        measured = {name: round(float(str(value)), 1) for name, value in report.user_properties}
        self.figures.setdefault(stage, {})[befallen or way] = {"passed": report.passed, **measured}

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The tests' own configuration ends the process after this."""
        if session.testscollected:
            write_result(NAME, self.figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", dest="expression", default="", help="which tests")
    expression = parser.parse_args().expression
    earlier: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(FileNotFoundError):
        earlier = json.loads((RESULTS_DIR / f"{NAME}.json").read_text())["results"] if expression else {}
    options = ["--quiet", "--numprocesses=0", "--timeout=600", "-k", expression]
    others = [f"{file}::{test}" for file, tests in OTHERS.items() for test in tests]
    raise SystemExit(pytest.main([*options, FILE, *others], plugins=[Measures(earlier)]))


if __name__ == "__main__":
    main()
