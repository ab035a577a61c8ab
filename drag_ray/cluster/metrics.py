"""Metrics of Ray for what a process does, which its dashboard and Prometheus read on every node.

Ray puts `ray_` before each name and `_total` behind that of a counter: `ray_drag_ray_turns_total`. Counters only grow, so that
Prometheus can tell rates from them; `rollout/dashboard.json` is a Grafana dashboard that does. A counter is exported from its
first step on. Ray takes each value of a histogram for the middle of its bucket, so only its buckets are right.

A stage tells how far it is, from its driver, with `STAGE_GAUGES`, and finetune and rl what was learned so far
(`TRAINING_GAUGES`); `dashboard.json` shows both. They are gone when the driver ends: what a finished stage came to stands in its
manifest.

An endpoint counts its searches beside what Ray Serve counts, by tool and status: `REQUEST_COUNTS`,
`ray_drag_ray_requests_total` and `ray_drag_ray_request_seconds`; `serve/dashboard.json` shows them.
"""

import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drag_ray.cluster.connection import is_connected
from drag_ray.storage.artifacts import read_identity

STAGE_GAUGES = {
    "stage_running": "1 while a stage runs, 0 afterwards",
    "stage_done": "what a stage has worked through, by item",
    "stage_planned": "what a stage has to work through, by item, where that is known",
}
TRAINING_GAUGES = {
    "train_loss": "loss of the last step",
    "train_eval_loss": "loss of the validation rows, the last time it was computed",
    "train_learning_rate": "learning rate of the last step",
    "train_grad_norm": "norm of the gradient of the last step",
    "train_kl": "how far the policy is from the one at the start, where the method computes it",
    "train_tokens": "tokens that were read so far, by all processes, padding aside",
    "train_reward": "mean reward of the last step's rollouts, where a stage learns while it collects; so are all that follow",
    "train_entropy": "how much its replies surprise the policy, in nats a token",
    "train_clipped": "share of its tokens that are as far from the policy before as they may come",
    "train_reply_tokens": "tokens of a reply",
    "train_without_search": "share of its rollouts that neither search nor call a tool",
    "train_repetitive": "share of its replies that go round in circles",
    "train_copied": "share of its searches that hold the whole question",
    "train_cut": "share of its replies that were cut at their token limit",
    "train_eval_reward": "mean reward of the validation questions, the last time that they were asked",
    "train_spread": "variance of the rewards of a question's rollouts",
}
"""By the fields of a point of the curve, after `train_`."""
REQUEST_COUNTS = {
    "request_pages": "pages that requests found",
    "request_queries": "queries that models wrote for requests",
    "request_prompt_tokens": "tokens of the prompts of requests, those that the engine had cached included",
    "request_completion_tokens": "tokens that models wrote for requests",
}
"""What requests to a search service come to."""

_REFRESH_S = 5.0
"""between two settings of a gauge; Ray forgets the value of one that was not set for two of its reports (10 s each)"""
_PREFIX = "drag_ray_"
_TAG_KEYS = ("run", "stage")
_REQUEST_DURATIONS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_DURATIONS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


class GaugeRefresher:
    """Sets gauges again for as long as this process is connected to Ray, so that what is true for minutes is exported."""

    def __init__(self) -> None:
        self._values: dict[tuple[Any, tuple[tuple[str, str], ...]], float] = {}
        self._changed = threading.Lock()

    def set(self, gauge: Any, value: float, **tags: str) -> None:
        """Set a gauge of `ray.util.metrics` whose default tags are set."""
        with self._changed:  # so that no earlier value is set again after this one
            gauge.set(value, tags)
            if not self._values:
                threading.Thread(target=self._refresh, name="gauges", daemon=True).start()
            self._values[gauge, tuple(tags.items())] = value

    def _refresh(self) -> None:
        while True:
            time.sleep(_REFRESH_S)
            with self._changed:
                if not is_connected():
                    self._values.clear()
                    return
                for (gauge, tags), value in self._values.items():
                    gauge.set(value, dict(tags))


_set_gauge = GaugeRefresher().set


class Recorder:
    """Takes the counts and the load of a worker, and forgets them."""

    def add_chunk(self, counts: Mapping[str, int], durations_s: Sequence[float]) -> None:
        """Add what the rollouts of a chunk came to, by the names of the counts, and the seconds that each of them took."""

    def set_load(self, num_running: int, num_waiting: int) -> None:
        """Note how many rollouts the engine works on, and how many wait for a slot."""


def name_tags(rollouts_dir: Path) -> dict[str, str]:
    """The tags that tell the metrics of two collections apart: the run's name, and `collect` or `evaluate/rollouts/engine1`.
    `rollouts_dir`: the folder of a stage, or one in it."""
    for stage_dir in (rollouts_dir, *rollouts_dir.parents):
        if address := read_identity(stage_dir).get("stage"):
            run_dir = stage_dir.parents[address.count("/")]
            return {"run": run_dir.name, "stage": rollouts_dir.relative_to(run_dir).as_posix()}
    return {"run": rollouts_dir.parent.name, "stage": rollouts_dir.name}


class RayRecorder(Recorder):
    """Records what a worker does as metrics of its process."""

    def __init__(self, tags: Mapping[str, str], counts: Mapping[str, str]) -> None:
        from ray.util.metrics import Counter, Gauge, Histogram  # here, so that who records nothing does without Ray

        self._counters = {name: Counter(_PREFIX + name, help_text, _TAG_KEYS) for name, help_text in counts.items()}
        self._running = Gauge(_PREFIX + "rollouts_running", "rollouts that the engine works on", _TAG_KEYS)
        self._waiting = Gauge(_PREFIX + "rollouts_waiting", "rollouts that wait for a slot of the engine", _TAG_KEYS)
        self._seconds = Histogram(_PREFIX + "rollout_seconds", "duration of a rollout", list(_DURATIONS_S), _TAG_KEYS)
        for metric in (*self._counters.values(), self._running, self._waiting, self._seconds):
            metric.set_default_tags(dict(tags))

    def add_chunk(self, counts: Mapping[str, int], durations_s: Sequence[float]) -> None:
        """Add what the rollouts of a chunk came to."""
        for name, count in counts.items():
            if count:  # Ray's counters refuse a step of 0
                self._counters[name].inc(count)
        for duration_s in durations_s:
            self._seconds.observe(duration_s)

    def set_load(self, num_running: int, num_waiting: int) -> None:
        """Note how many rollouts the engine works on, and how many wait for a slot."""
        _set_gauge(self._running, num_running)
        _set_gauge(self._waiting, num_waiting)


class StageRecorder:
    """Records how far a stage is as metrics of its process; without tags it forgets what it is told."""

    def __init__(self, tags: Mapping[str, str] | None = None) -> None:
        self._gauges: dict[str, Any] = {}
        if tags is None:
            return
        from ray.util.metrics import Gauge

        for name, help_text in (STAGE_GAUGES | TRAINING_GAUGES).items():
            has_items = name in ("stage_done", "stage_planned")
            self._gauges[name] = Gauge(_PREFIX + name, help_text, (*_TAG_KEYS, *(("item",) if has_items else ())))
            self._gauges[name].set_default_tags(dict(tags))

    def set_running(self, is_running: bool) -> None:
        """Note that the stage begins, or has ended."""
        self._set("stage_running", int(is_running))

    def set_progress(self, item: str, num_done: int, num_planned: int | None = None) -> None:
        """Note how many of its items (`pages`, `parts`, `steps`) are done, and how many there are."""
        self._set("stage_done", num_done, item=item)
        self._set("stage_planned", num_planned, item=item)

    def set_point(self, point: Mapping[str, float]) -> None:
        """Note the last point of a training's curve; what has no gauge is passed over."""
        for name in TRAINING_GAUGES:
            self._set(name, point.get(name.removeprefix("train_")))

    def _set(self, name: str, value: float | None, **tags: str) -> None:
        if name in self._gauges and value is not None:
            _set_gauge(self._gauges[name], value, **tags)


def open_stage_recorder(stage_dir: Path) -> StageRecorder:
    """Takes how far the stage of a folder is; forgets it where this process is connected to no Ray."""
    return StageRecorder(name_tags(stage_dir) if is_connected() else None)


@contextmanager
def show_progress(
    stage_dir: Path, work: str, unit: str, item: str, total: int, done: int = 0
) -> Generator[Callable[[int], None]]:
    """Show how far the work of a stage is: in a bar, and as the progress of an `item`. Gives what takes how much more is done."""
    from tqdm.auto import tqdm

    recorder = open_stage_recorder(stage_dir)
    with tqdm(desc=work, unit=f" {unit}", total=total, initial=done, mininterval=0.5 if sys.stderr.isatty() else 5) as bar:

        def advance(number: int) -> None:
            bar.update(number)
            recorder.set_progress(item, int(bar.n), total)

        yield advance


class RequestRecorder:
    """Takes what the requests to a search service came to, and forgets it."""

    def add_request(self, tool: str, status: int, duration_s: float, counts: Mapping[str, int]) -> None:
        """Add a request: to what (`search`, `ask`, `read_page`), its HTTP status, its seconds, and its `REQUEST_COUNTS`."""


class RayRequestRecorder(RequestRecorder):
    """Records what an endpoint's requests came to as metrics of its replica's process."""

    def __init__(self) -> None:
        from ray.util.metrics import Counter, Histogram

        tag_keys = ("tool", "status")
        self._requests = Counter(_PREFIX + "requests", "requests to the search service", tag_keys)
        self._counters = {name: Counter(_PREFIX + name, help_text, tag_keys) for name, help_text in REQUEST_COUNTS.items()}
        self._seconds = Histogram(_PREFIX + "request_seconds", "duration of a request", list(_REQUEST_DURATIONS_S), tag_keys)

    def add_request(self, tool: str, status: int, duration_s: float, counts: Mapping[str, int]) -> None:
        """Add a request."""
        tags = {"tool": tool, "status": str(status)}
        self._requests.inc(1, tags)
        for name, count in counts.items():
            if count:  # Ray's counters refuse a step of 0
                self._counters[name].inc(count, tags)
        self._seconds.observe(duration_s, tags)
