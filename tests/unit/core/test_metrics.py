"""Gauges, which Ray forgets unless they are set again."""

import time

import pytest

from drag_ray.cluster import metrics
from drag_ray.cluster.metrics import GaugeRefresher


class NotedGauge:
    def __init__(self) -> None:
        self.noted: list[tuple[float, dict[str, str]]] = []

    def set(self, value: float, tags: dict[str, str]) -> None:
        self.noted.append((value, tags))


def test_the_last_values_are_set_again_until_the_process_leaves_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_REFRESH_S", 0.01)
    monkeypatch.setattr(metrics, "is_connected", lambda: True)
    gauge, refresher = NotedGauge(), GaugeRefresher()
    for value in (1.0, 2.0):
        refresher.set(gauge, value, item="pages")
    refresher.set(gauge, 5.0, item="rows")
    deadline = time.monotonic() + 10
    while len(gauge.noted) < 7 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gauge.noted[:3] == [(1.0, {"item": "pages"}), (2.0, {"item": "pages"}), (5.0, {"item": "rows"})]
    assert [(2.0, {"item": "pages"}), (5.0, {"item": "rows"})] == gauge.noted[3:5] == gauge.noted[5:7]
    monkeypatch.setattr(metrics, "is_connected", lambda: False)
    time.sleep(0.1)
    num_noted = len(gauge.noted)
    time.sleep(0.1)
    assert len(gauge.noted) == num_noted
