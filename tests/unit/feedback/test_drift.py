"""Drift: what is significantly worse in the last week, by voices."""

from dataclasses import asdict
from pathlib import Path

import pytest
from factories import build_page
from small_index import finish_index

from drag_ray.cli.main import main
from drag_ray.feedback.drift import NEW_WORDS, NO_HITS, OPENED, RECIPROCAL_RANK, Drift, format_drift, measure_drift
from drag_ray.feedback.events import Event, Mark, ShownSearch
from drag_ray.storage.appended_lines import append_lines
from drag_ray.types import Evidence

PAGES = tuple(Evidence(f"{name}.pdf", 1) for name in "abcd")
WEEK_S = 7 * 24 * 3600


def search(client: str, week: int, rank: int, question: str = "rotor speed", hits: bool = True) -> list[Event]:
    """A search, and a click at a rank; 0 for none."""
    name = f"{client}-{week}-{rank}-{question}"
    shown = ShownSearch(name, week * WEEK_S, client, "", question, "", "base", PAGES if hits else ())
    return [shown, *([Mark(name, shown.time, client, "opened", PAGES[rank - 1], rank)] if rank else [])]


def measure(*weeks: list[list[Event]]) -> Drift:
    return measure_drift([event for week in weeks for events in week for event in events], {"rotor", "speed"}.__contains__)


def test_pages_that_are_opened_further_down_say_when_to_train() -> None:
    before = [search(f"c{number}", week, 1 + number % 2) for number in range(30) for week in (1, 2, 3)]
    drift = measure(before, [search(f"c{number}", 4, 2 + number % 3) for number in range(30)])
    assert drift.reasons == [RECIPROCAL_RANK]
    change, low, high = drift.changes[RECIPROCAL_RANK]
    assert (change, low < change < high < 0) == (pytest.approx(13 / 36 - 3 / 4), True)
    assert next(iter(drift.weeks.values()))[OPENED].mean == 1
    assert "Train again, from: drag-ray learn RUN." in format_drift(drift, Path("RUN"))


def test_new_words_and_questions_without_hits_are_named_by_voices() -> None:
    before = [search(f"c{number}", 1, 1) for number in range(30)]
    now = [search(f"c{number}", 2, 0, "rotor vibration", hits=number % 2 == 0) for number in range(30)]
    drift = measure(before, now, [search("c1", 2, 0, "rotor vibration ")])
    assert drift.reasons == [NO_HITS, NEW_WORDS, OPENED, RECIPROCAL_RANK]
    assert (drift.new_words, drift.without_hits) == ([("vibration", 30)], [("rotor vibration", 15)])
    assert "Look whether documents are missing, too." in format_drift(drift, Path("RUN"))


def test_one_client_and_chance_say_nothing() -> None:
    before = [search(f"c{number}", 1, 1 + number % 2) for number in range(30)]
    same = [search(f"c{number}", 2, 1 + (number + 1) % 2) for number in range(30)]
    hostile = [search("hostile", 2, 0, f"nonsense {number}", hits=False) for number in range(1000)]
    drift = measure(before, same, hostile)
    assert drift.reasons == []
    assert "no need to train again" in format_drift(drift, Path("RUN"))
    assert "Too few voices" in format_drift(measure(before, hostile), Path("RUN"))
    assert "Too few voices" in format_drift(measure(), Path("RUN"))


@pytest.mark.seconds
def test_the_command_asks_the_index_for_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish_index(tmp_path, [build_page(file="a.pdf", page_number=1, text="How does it turn? The rotors do at full speed.")], [])
    (tmp_path / "feedback").mkdir()
    events = search("c1", 1, 0, "How does the rotor speed drift?")
    append_lines(tmp_path / "feedback" / "2026-03-01-abcd.jsonl", map(asdict, events))
    assert main(["drift", str(tmp_path)]) == 0
    assert "new words, with voices: drift 1" in capsys.readouterr().out


def test_a_run_without_an_index_or_feedback_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drift", str(tmp_path)]) == 1
    assert "python jobs/index.py" in capsys.readouterr().err
