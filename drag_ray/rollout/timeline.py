"""When each engine of a collection worked and when it was idle, told from the rollouts that it has left on the disk."""

import itertools
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from drag_ray.errors import DataError
from drag_ray.file_access import reading
from drag_ray.rollout.folder import FAILURES_DIR_NAME, TRAJECTORIES_DIR_NAME
from drag_ray.rollout.journal import list_files, read_engine

_TIMES = ("generate_s", "search_s", "tool_s")
_STRIP_WIDTH = 60
_TOLD_SHARE = 0.01
"""of the whole time: an idle span that is shorter is in the shares alone"""

Intervals = npt.NDArray[np.float64]
"""(n, 2): begins and ends, in seconds."""


class State(StrEnum):
    """What an engine did; the first letter of each stands for it in a strip."""

    GENERATING = "generating"
    """It wrote replies."""
    SEARCHING = "searching"
    """All of its rollouts searched, or waited for tools."""
    LOADING = "loading"
    """It had begun no rollout yet: it started, or came later than others."""
    WAITING = "waiting"
    """It had no rollout, while others had some: it was given none, or has died and was replaced."""
    PAUSED = "paused"
    """No engine had a rollout: the stage was stopped, or all engines started anew."""
    OVER = "over"
    """It got no further rollout, while others still had some."""


@dataclass(frozen=True)
class Span:
    """Seconds since the first rollout of the collection began, and what the engine did then."""

    begin_s: float
    end_s: float
    state: State


@dataclass(frozen=True)
class EngineTimeline:
    """What an engine did from the first rollout of a collection to the end of its last.

    Attributes:
        engine: its name in the names of the files that it wrote.
        spans: one after the other, without gaps.
    """

    engine: str
    num_rollouts: int
    spans: tuple[Span, ...]

    def compute_shares(self) -> dict[State, float]:
        """Parts of the whole time by state."""
        whole = self.spans[-1].end_s - self.spans[0].begin_s
        return {state: sum(span.end_s - span.begin_s for span in self.spans if span.state is state) / whole for state in State}


def read_timelines(stage_dir: Path) -> list[EngineTimeline]:
    """The timelines of the engines of a collection, finished or not.

    Raises:
        ArtifactError: the folder cannot be read.
        DataError: it holds no rollout.
    """
    running: dict[str, list[Intervals]] = defaultdict(list)
    generating: dict[str, list[Intervals]] = defaultdict(list)
    for path in (path for name in (TRAJECTORIES_DIR_NAME, FAILURES_DIR_NAME) for path in list_files(stage_dir, name)):
        of_rollouts, of_replies = _read_intervals(path)
        running[read_engine(path)].append(of_rollouts)
        generating[read_engine(path)].append(of_replies)
    if not running:
        raise DataError(f"{stage_dir}: no rollout lies there. Give the folder of a collect stage, as runs/mine/collect.")
    return build_timelines(
        {engine: np.concatenate(parts) for engine, parts in running.items()},
        {engine: np.concatenate(parts) for engine, parts in generating.items()},
    )


def build_timelines(running: Mapping[str, Intervals], generating: Mapping[str, Intervals]) -> list[EngineTimeline]:
    """The timelines in the order in which the engines began.

    Args:
        running: when each rollout of an engine ran, at least one.
        generating: when the engine wrote a reply of one of them.
    """
    everywhere = _unite(np.concatenate(list(running.values())))
    begin, end = everywhere[0, 0], max(everywhere[-1, 1], everywhere[0, 0] + 1e-3)
    timelines: list[EngineTimeline] = []
    for engine, rollouts in running.items():
        busy, writing = _unite(rollouts), _unite(generating[engine])
        edges = np.unique(np.concatenate([busy.ravel(), writing.ravel(), everywhere.ravel(), [begin, end]]))
        spans: list[Span] = []
        for left, right in itertools.pairwise(edges):
            state = _tell_state((left + right) / 2, busy, writing, everywhere)
            if spans and spans[-1].state is state:
                spans[-1] = Span(spans[-1].begin_s, float(right - begin), state)
            else:
                spans.append(Span(float(left - begin), float(right - begin), state))
        timelines.append(EngineTimeline(engine, len(rollouts), tuple(spans)))
    return sorted(timelines, key=lambda timeline: (running[timeline.engine].min(), timeline.engine))


def format_timelines(timelines: Sequence[EngineTimeline]) -> str:
    """A strip and the shares of each engine, and then each longer time for which one was idle."""
    whole_s = timelines[0].spans[-1].end_s
    signs = ", ".join(f"{state[0].upper() if _is_idle(state) else state[0]} {state}" for state in State)
    lines = [f"{_format_time(whole_s)} from the first rollout to the end of the last ({signs})"]
    for timeline in timelines:
        shares = ", ".join(f"{state} {share:.0%}" for state, share in timeline.compute_shares().items() if share >= 0.005)
        lines += [f"{timeline.engine}  {_draw_strip(timeline, whole_s)}", f"  {timeline.num_rollouts} rollouts: {shares}"]
    for timeline in timelines:
        for span in timeline.spans:
            if _is_idle(span.state) and span.end_s - span.begin_s >= _TOLD_SHARE * whole_s:
                lines.append(f"{timeline.engine} idle {_format_time(span.begin_s)} to {_format_time(span.end_s)}: {span.state}")
    return "\n".join(lines)


def format_json(timelines: Sequence[EngineTimeline]) -> str:
    """The same for programs."""
    return json.dumps([asdict(timeline) for timeline in timelines], indent=2)


def _read_intervals(path: Path) -> tuple[Intervals, Intervals]:
    """When the rollouts of a file ran, and when replies were written in them: a turn's times follow one another."""
    columns = ["started_at", "duration_s", *(f"turns.list.element.{name}" for name in _TIMES)]
    with reading(path):
        rows = pq.ParquetFile(path).read(columns=columns).to_pylist()
    rollouts: list[tuple[float, float]] = []
    replies: list[tuple[float, float]] = []
    for row in rows:
        now = datetime.fromisoformat(row["started_at"]).timestamp()
        rollouts.append((now, now + row["duration_s"]))
        for turn in row["turns"]:
            replies.append((now, now + turn["generate_s"]))
            now += sum(turn[name] for name in _TIMES)
    return np.array(rollouts, float).reshape(-1, 2), np.array(replies, float).reshape(-1, 2)


def _unite(intervals: Intervals) -> Intervals:
    """The same times as intervals that do not meet, in their order."""
    united: list[list[float]] = []
    for begin, end in intervals[np.argsort(intervals[:, 0])].tolist():
        if united and begin <= united[-1][1]:
            united[-1][1] = max(united[-1][1], end)
        else:
            united.append([begin, end])
    return np.array(united, float).reshape(-1, 2)


def _tell_state(moment: float, busy: Intervals, writing: Intervals, everywhere: Intervals) -> State:
    if _holds(writing, moment):
        return State.GENERATING
    if _holds(busy, moment):
        return State.SEARCHING
    if not _holds(everywhere, moment):
        return State.PAUSED
    if moment < busy[0, 0]:
        return State.LOADING
    return State.OVER if moment > busy[-1, 1] else State.WAITING


def _holds(intervals: Intervals, moment: float) -> bool:
    place = int(np.searchsorted(intervals[:, 0], moment, side="right")) - 1
    return place >= 0 and bool(moment < intervals[place, 1])


def _is_idle(state: State) -> bool:
    return state not in (State.GENERATING, State.SEARCHING)


def _draw_strip(timeline: EngineTimeline, whole_s: float) -> str:
    """A sign for each part of the time: of what took most of it."""
    edges = np.linspace(0, whole_s, _STRIP_WIDTH + 1)
    signs: list[str] = []
    for left, right in itertools.pairwise(edges):
        took = defaultdict[State, float](float)
        for span in timeline.spans:
            took[span.state] += max(0.0, min(right, span.end_s) - max(left, span.begin_s))
        most = max(took, key=took.__getitem__)
        signs.append(most[0].upper() if _is_idle(most) else most[0])
    return "".join(signs)


def _format_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
