"""What a process does, as metrics of Ray, which its dashboard and Prometheus read on every node.

Ray puts `ray_` before each name and `_total` behind that of a counter: `ray_drag_ray_turns_total`. Counters only grow, so that
Prometheus can tell rates from them; `rollout/dashboard.json` is a Grafana dashboard that does. A counter is exported from its
first step on. Ray takes each value of a histogram for the middle of its bucket, so only its buckets are right.

An endpoint counts its searches beside what Ray Serve counts: `ray_drag_ray_requests_total`,
`ray_drag_ray_request_pages_total` and `ray_drag_ray_request_seconds`, by tool and status.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from drag_ray.artifacts import IDENTITY_NAME, read_address

_PREFIX = "drag_ray_"
_TAG_KEYS = ("run", "stage")
_REQUEST_DURATIONS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_DURATIONS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


class Recorder(Protocol):
    """Takes the counts and the load of a worker."""

    def add_chunk(self, counts: Mapping[str, int], durations_s: Sequence[float]) -> None:
        """Add what the rollouts of a chunk came to, by the names of the counts, and the seconds that each of them took."""
        ...

    def set_load(self, num_running: int, num_waiting: int) -> None:
        """Note how many rollouts the engine works on, and how many wait for a slot."""
        ...


class NoRecorder:
    """Forgets everything."""

    def add_chunk(self, counts: Mapping[str, int], durations_s: Sequence[float]) -> None: ...

    def set_load(self, num_running: int, num_waiting: int) -> None: ...


def name_tags(rollouts_dir: Path) -> dict[str, str]:
    """What tells the metrics of two collections apart: the run's name, and `collect` or `evaluate/rollouts/engine1`.

    Args:
        rollouts_dir: the folder of a stage, or one in it.
    """
    for stage_dir in (rollouts_dir, *rollouts_dir.parents):
        if (stage_dir / IDENTITY_NAME).is_file():
            address = read_address(stage_dir)
            run_dir = stage_dir.parents[address.count("/")]
            return {"run": run_dir.name, "stage": rollouts_dir.relative_to(run_dir).as_posix()}
    return {"run": rollouts_dir.parent.name, "stage": rollouts_dir.name}


class RayRecorder:
    """Records what a worker does as metrics of its process.

    Args:
        tags: as of `name_tags`.
        counts: the names of what is counted, and what each of them means.
    """

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
        self._running.set(num_running)
        self._waiting.set(num_waiting)


class RequestRecorder(Protocol):
    """Takes what the requests to a search service came to."""

    def add_request(self, tool: str, status: int, duration_s: float, num_pages: int) -> None:
        """Add a request: to what (`search`, `ask`, `read_page`), its HTTP status, its seconds, and the pages that it found."""
        ...


class NoRequestRecorder:
    """Forgets everything."""

    def add_request(self, tool: str, status: int, duration_s: float, num_pages: int) -> None: ...


class RayRequestRecorder:
    """Records what an endpoint's requests came to as metrics of its replica's process."""

    def __init__(self) -> None:
        from ray.util.metrics import Counter, Histogram

        tag_keys = ("tool", "status")
        self._requests = Counter(_PREFIX + "requests", "requests to the search service", tag_keys)
        self._pages = Counter(_PREFIX + "request_pages", "pages that requests found", tag_keys)
        self._seconds = Histogram(_PREFIX + "request_seconds", "duration of a request", list(_REQUEST_DURATIONS_S), tag_keys)

    def add_request(self, tool: str, status: int, duration_s: float, num_pages: int) -> None:
        """Add a request."""
        tags = {"tool": tool, "status": str(status)}
        self._requests.inc(1, tags)
        if num_pages:  # Ray's counters refuse a step of 0
            self._pages.inc(num_pages, tags)
        self._seconds.observe(duration_s, tags)
