"""When engines worked: intervals whose states are computed by hand, and rollouts on the disk."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from factories import build_question, build_search, build_trajectory

from drag_ray.cli import main
from drag_ray.rollout.journal import Journal, drop_repeated, list_files, read_engine
from drag_ray.rollout.timeline import Span, State, build_timelines, format_timelines, read_timelines


def to_intervals(*pairs: tuple[float, float]) -> np.ndarray:
    return np.array(pairs, float).reshape(-1, 2)


def test_what_each_engine_did_is_told_without_gaps() -> None:
    running = {
        "late": to_intervals((60, 70), (65, 80)),
        "first": to_intervals((10, 20), (12, 30), (40, 50), (100, 110)),
    }
    generating = {"late": to_intervals((60, 80)), "first": to_intervals((10, 15), (13, 30), (40, 44), (46, 50), (100, 110))}
    first, late = build_timelines(running, generating)
    assert (first.engine, first.num_rollouts, late.engine, late.num_rollouts) == ("first", 4, "late", 2)
    assert first.spans == (
        Span(0, 20, State.GENERATING),
        Span(20, 30, State.PAUSED),  # no engine had a rollout
        Span(30, 34, State.GENERATING),
        Span(34, 36, State.SEARCHING),
        Span(36, 40, State.GENERATING),
        Span(40, 50, State.PAUSED),
        Span(50, 70, State.WAITING),  # the other one had some
        Span(70, 90, State.PAUSED),
        Span(90, 100, State.GENERATING),
    )
    assert [span.state for span in late.spans] == [
        *(State.LOADING, State.PAUSED, State.LOADING, State.PAUSED, State.GENERATING, State.PAUSED, State.OVER)
    ]
    shares = first.compute_shares()
    assert shares[State.GENERATING] == pytest.approx(0.38)
    assert sum(shares.values()) == pytest.approx(1)


def test_each_longer_idle_time_has_a_line_with_its_reason() -> None:
    running = {"a": to_intervals((0, 10), (40, 100)), "b": to_intervals((0, 60))}
    lines = format_timelines(build_timelines(running, running)).splitlines()
    assert lines[1] == "a  ggggggWWWWWWWWWWWWWWWWWWgggggggggggggggggggggggggggggggggggg"
    assert lines[2] == "  2 rollouts: generating 70%, waiting 30%"
    assert lines[-2:] == ["a idle 0:00:10 to 0:00:40: waiting", "b idle 0:01:00 to 0:01:40: over"]


def test_rollouts_on_the_disk_are_told_by_the_engine_that_wrote_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = dataclasses.replace(build_search("rotor", 1), generate_s=2.0, search_s=1.0)
    for engine in range(2):
        journal = Journal(tmp_path / "collect", flush_s=1000)
        for number in range(2):
            rollout = build_trajectory(search, question=build_question(id=f"q{engine}{number}"), duration_s=3.0)
            started_at = f"2026-01-01T00:00:{10 * engine + 3 * number:02}.500+00:00"
            journal.add(dataclasses.replace(rollout, id=f"{engine}{number}", started_at=started_at))
            journal.flush()
    first, second = read_timelines(tmp_path / "collect")
    assert (first.num_rollouts, second.num_rollouts) == (2, 2)
    assert [(span.begin_s, span.end_s, span.state) for span in first.spans][:4] == [
        *((0, 2, "generating"), (2, 3, "searching"), (3, 5, "generating"), (5, 6, "searching"))
    ]
    assert second.spans[0] == Span(0, 6, State.LOADING)
    assert main(["timeline", str(tmp_path / "collect"), "--json"]) == 0
    assert [row["engine"] for row in json.loads(capsys.readouterr().out)] == [first.engine, second.engine]
    assert main(["timeline", str(tmp_path)]) == 1


def test_what_is_left_of_a_file_with_repeated_rollouts_stays_its_engine_s(tmp_path: Path) -> None:
    rollouts = [build_trajectory(build_search("rotor", 1), id=name) for name in ("a", "b")]
    journals = [Journal(tmp_path, flush_s=1000) for _ in range(2)]
    for journal, some in zip(journals, (rollouts[:1], rollouts), strict=True):
        for rollout in some:
            journal.add(rollout)
        journal.flush()
    engines = {read_engine(path) for path in list_files(tmp_path, "trajectories")}
    drop_repeated(tmp_path)
    assert {read_engine(path) for path in list_files(tmp_path, "trajectories")} == engines
    assert len(engines) == 2
