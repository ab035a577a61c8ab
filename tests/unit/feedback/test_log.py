"""The table of feedback: what is in it, when it goes, and who can read it."""

import asyncio
import errno
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from drag_ray.errors import ArtifactError
from drag_ray.feedback import log
from drag_ray.feedback.events import Event, Mark, ShownSearch
from drag_ray.feedback.log import EventLog, make_secret, read_events, read_secret
from drag_ray.serve.search.feedback_service import HourlyCounts
from drag_ray.types import Evidence

DAY_S = 86_400
SEARCH = ShownSearch(
    "s1", 1_790_000_000, "c1", "", "Wie schnell? \u2028", "", "base", (Evidence("a.pdf", 1), Evidence("b.pdf", 2))
)
MARKS = [Mark(f"s{number}", 1_790_000_000, "c1", "opened", Evidence("a.pdf", 1), 1) for number in range(50)]


class Clock:
    now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


async def append_all(events: list[Event], *logs: EventLog) -> None:
    await asyncio.gather(*(logs[place % len(logs)].append(event) for place, event in enumerate(events)))


async def test_processes_write_files_of_their_own_that_read_as_one_table(tmp_path: Path) -> None:
    events: list[Event] = [SEARCH, *MARKS]
    await append_all(events, EventLog(tmp_path, 30), EventLog(tmp_path, 30))
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    assert sorted(map(repr, read_events(tmp_path))) == sorted(map(repr, events))


async def test_a_line_that_has_no_end_yet_is_left_as_it_is(tmp_path: Path) -> None:
    await EventLog(tmp_path, 30).append(SEARCH)
    [path] = tmp_path.glob("*.jsonl")
    with path.open("ab") as stream:
        stream.write(b'{"kind": "mark", "search": "s')
    size = path.stat().st_size
    assert list(read_events(tmp_path)) == [SEARCH]
    assert path.stat().st_size == size


async def test_what_is_older_than_its_retention_goes_also_where_nothing_new_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_TEND_EVERY_S", 0.01)
    clock = Clock()
    kept = EventLog(tmp_path, 2, clock)
    for _ in range(5):
        await kept.append(SEARCH)
        clock.now += DAY_S
    await asyncio.sleep(0.2)
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    clock.now += 2 * DAY_S
    await asyncio.sleep(0.2)
    assert list(tmp_path.glob("*.jsonl")) == []


async def test_a_process_keeps_no_more_than_its_share_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_MAX_FILE_BYTES", 1000)
    kept = EventLog(tmp_path, 2)
    for mark in MARKS[:7]:
        await kept.append(mark)
    with pytest.raises(ArtifactError, match="holds 1,000 bytes"):
        await kept.append(SEARCH)
    assert sum(path.stat().st_size for path in tmp_path.glob("*.jsonl")) < 1500


async def test_who_hangs_up_while_a_batch_is_written_loses_nothing_of_the_others(tmp_path: Path) -> None:
    kept = EventLog(tmp_path, 2)
    tasks = [asyncio.create_task(kept.append(mark)) for mark in MARKS]
    await asyncio.sleep(0)
    tasks[0].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == [None] * 49
    assert len(list(read_events(tmp_path))) == 50


def test_the_secret_is_made_once_and_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "feedback"
    make_secret(folder)
    secret = read_secret(folder)
    make_secret(folder)
    assert (read_secret(folder), len(secret)) == (secret, 32)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "secret")] == [0o700, 0o600]
    (folder / "secret").write_bytes(b"")
    with pytest.raises(ArtifactError, match="0 bytes, expected 32"):
        read_secret(folder)


def test_a_secret_is_whole_or_absent_and_one_for_all_who_make_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "feedback"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", Mock(side_effect=OSError(errno.ENOSPC, "full")))
        with pytest.raises(ArtifactError):
            make_secret(folder)

    def make(_: int) -> bytes:
        make_secret(folder)
        return read_secret(folder)

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(make, range(64)))) == 1


def test_counts_of_a_million_names_take_no_more_memory_and_are_never_too_low() -> None:
    clock = Clock()
    counts = HourlyCounts(clock)
    assert [counts.add("one") for _ in range(3)] == [1, 2, 3]
    for number in range(100_000):
        counts.add(number)
    assert len(counts._counts) == 2**16
    assert counts.add("one") >= 4
    clock.now += 3601
    assert counts.add("one") == 1
