"""The Grafana dashboards ask for series that are exported, and no others; Grafana's own model of them knows all their fields.
Ray forgets gauges unless they are set again.
"""

import json
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

import drag_ray
from drag_ray.cluster import metrics
from drag_ray.cluster.metrics import GaugeRefresher, RayRecorder, RayRequestRecorder, StageRecorder
from drag_ray.rollout.counts import COUNTS, WORKER_COUNTS

PACKAGE = Path(drag_ray.__file__).parent
DASHBOARDS = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("dashboard.json"))
SUFFIXES = {"Counter": ("_total",), "Gauge": ("",), "Histogram": ("_bucket", "_count", "_sum")}
OF_SERVE = {"ray_serve_replica_processing_queries", "ray_serve_deployment_processing_latency_ms_bucket"}
"""Ray Serve's own; tests/integration/serve/test_serve_stage.py finds them."""


def read(dashboard: str) -> Any:
    return json.loads((PACKAGE / dashboard).read_text())


def list_queries(dashboard: str) -> list[str]:
    return [target["expr"] for panel in read(dashboard)["panels"] for target in panel["targets"]]


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """The tags of each series that the recorders export, by its name with Ray's prefix and suffixes."""
    from ray.util import metrics

    series: dict[str, set[str]] = {}

    def note(kind: str) -> type:
        class Metric:
            def __init__(self, name: str, help_text: str, *options: Sequence[Any]) -> None:
                for suffix in SUFFIXES[kind]:
                    series[f"ray_{name}{suffix}"] = {*options[-1], *(("le",) if suffix == "_bucket" else ())}

            def set_default_tags(self, tags: dict[str, str]) -> None: ...

        return Metric

    for kind in SUFFIXES:
        monkeypatch.setattr(metrics, kind, note(kind))
    RayRecorder({}, COUNTS | WORKER_COUNTS)
    StageRecorder({})
    RayRequestRecorder()
    return series


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_every_series_is_exported_with_the_tags_that_queries_use(dashboard: str, exported: dict[str, set[str]]) -> None:
    variables = [variable["query"] for variable in read(dashboard)["templating"]["list"][1:]]
    for query in (*list_queries(dashboard), *variables):
        names = set(re.findall(r"ray_\w+", query))
        assert names
        assert names - OF_SERVE <= set(exported)
        if names <= set(exported):
            tags = re.findall(r"(\w+)(?:!?=~?\")", query) + re.findall(r"label_values\(\w+, (\w+)\)", query)
            tags += [tag for group in re.findall(r"by \(([\w, ]+)\)", query) for tag in group.split(", ")]
            assert set(tags) <= set.intersection(*(exported[name] for name in names)), query


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_a_dashboard_has_what_grafana_imports_it_by_and_its_queries_are_of_what_was_chosen(dashboard: str) -> None:
    board = read(dashboard)
    assert board["schemaVersion"] >= 36
    assert "id" not in board  # of another Grafana's database
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len({panel["id"] for panel in board["panels"]}) == len(places)
    for panel in board["panels"]:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    [_, variable] = read(dashboard)["templating"]["list"]
    for query in list_queries(dashboard):
        assert query.count("ray_drag_ray_") == query.count(f'{{{variable["name"]}=~"${variable["name"]}"')
        for opening, closing in ("()", "[]", "{}"):
            assert query.count(opening) == query.count(closing)


def list_lost(given: Any, kept: Any, place: str = "") -> Iterator[str]:
    """Places of a given value that is not kept as it was."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for name in given:
            yield from list_lost(given[name], kept.get(name), f"{place}.{name}")
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for number, (item, other) in enumerate(zip(given, kept, strict=True)):
            yield from list_lost(item, other, f"{place}[{number}]")
    elif given != kept:
        yield place


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_grafana_knows_all_that_a_dashboard_says(dashboard: str) -> None:
    register_default_plugins()

    def list_unknown(board: dict[str, Any]) -> list[str]:
        return list(list_lost(board, json.loads(JSONEncoder().encode(Dashboard.from_json(board)))))

    board = read(dashboard)
    assert list_unknown(board) == []
    board["panels"][0]["titel"] = board["panels"][0]["targets"][0]["expression"] = "misspelt"
    assert list_unknown(board) == [".panels[0].targets[0].expression", ".panels[0].titel"]


def test_dashboards_can_stand_side_by_side() -> None:
    boards = [read(dashboard) for dashboard in DASHBOARDS]
    assert len(boards) == 3
    assert len({board["uid"] for board in boards}) == len({board["title"] for board in boards}) == 3


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
