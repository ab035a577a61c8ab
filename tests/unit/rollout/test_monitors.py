from collections import Counter

import pytest

from drag_ray.rollout.counts import COUNTS
from drag_ray.rollout.monitors import MONITORS, Watch


@pytest.mark.parametrize("monitor", MONITORS, ids=lambda monitor: monitor.part)
def test_each_monitor_warns_once_when_its_share_passes_its_limit(monitor) -> None:
    watch = Watch()
    at_limit = round(monitor.limit * 1000)
    assert list(watch.find_new(Counter({monitor.whole: 1000, monitor.part: at_limit}))) == []
    [warning] = watch.find_new(Counter({monitor.whole: 1000, monitor.part: at_limit + 10}))
    assert warning.startswith(f"{monitor.limit + 0.01:.0%} of 1,000 ")
    assert monitor.part in warning
    assert list(watch.find_new(Counter({monitor.whole: 1000, monitor.part: 1000}))) == []


def test_a_few_are_not_judged() -> None:
    assert list(Watch().find_new(Counter({"turns": 49, "invalid_replies": 49}))) == []
    assert len(list(Watch().find_new(Counter({"turns": 50, "invalid_replies": 50})))) == 1


def test_monitors_watch_what_is_counted() -> None:
    assert {name for monitor in MONITORS for name in (monitor.part, monitor.whole)} <= set(COUNTS)
