"""The Grafana dashboard of a collection asks for series that a collection exports, and for no others."""

import json
import re
from pathlib import Path

import drag_ray
from drag_ray.rollout.counts import COUNTS, WORKER_COUNTS

DASHBOARD = json.loads((Path(drag_ray.__file__).parent / "rollout" / "dashboard.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_every_series_is_exported() -> None:
    asked = set(re.findall(r"ray_drag_ray_\w+", " ".join(QUERIES)))
    counters = {f"ray_drag_ray_{name}_total" for name in COUNTS | WORKER_COUNTS}
    # tests/integration/test_collect_metrics.py finds these three
    assert asked - counters == {
        "ray_drag_ray_rollouts_running",
        "ray_drag_ray_rollouts_waiting",
        "ray_drag_ray_rollout_seconds_bucket",
    }


def test_every_query_is_of_the_chosen_runs() -> None:
    for query in QUERIES:
        assert query.count("ray_drag_ray_") == query.count('{run=~"$run"}')
        assert query.count("(") == query.count(")")


def test_panels_do_not_overlap() -> None:
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)
