"""What the machines of a stage cost, reckoned over all its starts."""

import json
import threading
from itertools import chain, repeat
from pathlib import Path

import pytest
from pydantic import ValidationError

from drag_ray.cluster import ledger
from drag_ray.cluster.ledger import LEDGER_NAME, CostConfig, Ledger


def write_hours(folder: Path, *hours: tuple[float, int, int]) -> Path:
    path = folder / LEDGER_NAME
    lines = [{"seconds": 3600 * seconds, "gpus": gpus, "cpus": cpus} for seconds, gpus, cpus in hours]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_hours_of_all_starts_are_added_up(tmp_path: Path) -> None:
    path = write_hours(tmp_path, (2, 8, 64), (0.5, 4, 32))
    with Ledger(path, CostConfig(gpu_hour=2.5, cpu_hour=0.1), lambda: (0, 0)) as hours:
        pass
    assert hours.summarise() == {"gpu_hours": 18.0, "cpu_hours": 144.0, "cost": 59.4}


def test_machines_that_come_while_a_stage_runs_count_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "INTERVAL_S", 0.01)
    has, looked = chain([(1, 0)] * 2, repeat((8, 4))), threading.Semaphore(0)

    def count() -> tuple[int, int]:
        looked.release()
        return next(has)

    with Ledger(tmp_path / LEDGER_NAME, CostConfig(gpu_hour=1), count):
        for _ in range(4):
            looked.acquire()
    lines = [json.loads(line) for line in (tmp_path / LEDGER_NAME).read_text().splitlines()]
    assert [(line["gpus"], line["cpus"]) for line in lines[:4]] == [(1, 0), (1, 0), (8, 4), (8, 4)]
    assert all(line["seconds"] > 0 for line in lines[:4])


@pytest.mark.parametrize(
    "line", ["{", "[1]", '{"seconds": 1}', '{"seconds": NaN, "gpus": 1, "cpus": 1}', '{"seconds": -9, "gpus": 1, "cpus": 1}']
)
def test_a_line_of_a_ledger_that_is_none_is_passed_over_and_named(
    line: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_hours(tmp_path, (2, 8, 64))
    with path.open("a") as stream:
        stream.write(line + "\n")
    with Ledger(path, CostConfig(gpu_hour=1), lambda: (0, 0)) as hours:
        pass
    assert hours.summarise()["gpu_hours"] == 16
    assert f"{path}: line 2 is passed over" in caplog.text


def test_what_ends_a_stage_within_its_budget_is_what_it_was(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Ledger(tmp_path / LEDGER_NAME, CostConfig(gpu_hour=1, budget=1), lambda: (1, 0)):
        raise KeyboardInterrupt


def test_without_prices_nothing_is_noted(tmp_path: Path) -> None:
    with Ledger(tmp_path / LEDGER_NAME, CostConfig(), lambda: pytest.fail("nobody asks")) as hours:
        pass
    assert hours.summarise() == {}
    assert not (tmp_path / LEDGER_NAME).exists()


def test_a_budget_needs_a_price() -> None:
    with pytest.raises(ValidationError, match=r"set cost.gpu_hour"):
        CostConfig(budget=5)
