"""Drift: whether people find less than they did, by the table of an endpoint, and what they ask that the index does not have."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from drag_ray.feedback.events import Event
from drag_ray.feedback.ledger import format_day
from drag_ray.feedback.log import read_events, require_feedback
from drag_ray.feedback.sessions import Visit, list_visits
from drag_ray.storage.artifacts import require_manifest

_WEEK_S = 7 * 24 * 3600
MIN_VOICES = 20
"""in the last week and before it, for a comparison"""
_Z = 1.96
_NUM_NAMED = 10
_WORD = re.compile(r"\w+")
NO_HITS, NEW_WORDS, OPENED, RECIPROCAL_RANK = FIGURES = ("no hits", "new words", "opened", "1/rank opened")
"""Of a search: it showed no page; its question has a word that the index does not have; a page was opened or marked right; the
reciprocal of the rank of the first such page, 0 for none."""
_WORSE_BELOW = (OPENED, RECIPROCAL_RANK)


@dataclass(frozen=True, slots=True)
class Share:
    """A mean over voices, of each of which the mean of its searches counts once."""

    mean: float
    error: float
    voices: int


@dataclass(frozen=True)
class Drift:
    """The report: the figures of each week by its first day, the oldest first, the last one ending with the last search; the
    change of each figure from the time before to the last week, with the interval of 95 % for who looks once, where there are
    voices enough; new words and questions without hits of the last week, with the number of voices that had them."""

    weeks: dict[int, dict[str, Share]]
    changes: dict[str, tuple[float, float, float]]
    new_words: list[tuple[str, int]]
    without_hits: list[tuple[str, int]]

    @property
    def reasons(self) -> list[str]:
        """The figures that are significantly worse."""
        return [name for name, (_, low, high) in self.changes.items() if (high < 0 if name in _WORSE_BELOW else low > 0)]


def measure_drift(events: Iterable[Event], is_known: Callable[[str], bool]) -> Drift:
    """The drift that a table shows. `is_known`: whether the index has a word."""
    visits = list_visits(events, Counter())
    end = visits[-1].search.time if visits else 0
    weeks = defaultdict[int, list[Visit]](list)
    for visit in visits:
        weeks[end - ((end - visit.search.time) // _WEEK_S + 1) * _WEEK_S + 1].append(visit)
    knows = cache(is_known)
    last = weeks[max(weeks)] if weeks else []
    before = visits[: len(visits) - len(last)]
    named = [_name_most(last, lambda visit: _list_new(visit, knows))]
    named.append(_name_most(last, lambda visit: [] if visit.search.pages else [visit.search.question.strip()]))
    return Drift(
        {start: _measure(of_week, knows) for start, of_week in weeks.items()},
        dict(_compare(_measure(before, knows), _measure(last, knows))),
        *named,
    )


def _list_new(visit: Visit, knows: Callable[[str], bool]) -> list[str]:
    return [word for word in set(_WORD.findall(visit.search.question.casefold())) if not knows(word)]


def _measure(visits: Sequence[Visit], knows: Callable[[str], bool]) -> dict[str, Share]:
    values: dict[str, defaultdict[str, list[float]]] = {name: defaultdict(list) for name in FIGURES}
    for visit in visits:
        for name, value in _list_values(visit, knows):
            values[name][visit.search.client].append(value)
    return {name: _estimate([fmean(own) for own in by_voice.values()]) for name, by_voice in values.items() if by_voice}


def _list_values(visit: Visit, knows: Callable[[str], bool]) -> Iterator[tuple[str, float]]:
    yield NO_HITS, float(not visit.search.pages)
    if visit.search.question:
        yield NEW_WORDS, float(bool(_list_new(visit, knows)))
    ranks = [mark.rank for mark in visit.marks if mark.action != "wrong"]
    yield OPENED, float(bool(ranks))
    yield RECIPROCAL_RANK, 1 / min(ranks) if ranks else 0.0


def _estimate(means: Sequence[float]) -> Share:
    number = len(means)
    return Share(fmean(means), stdev(means) / sqrt(number) if number > 1 else float("inf"), number)


def _compare(before: Mapping[str, Share], last: Mapping[str, Share]) -> Iterator[tuple[str, tuple[float, float, float]]]:
    for name in FIGURES:
        pair = before.get(name), last.get(name)
        if pair[0] and pair[1] and min(pair[0].voices, pair[1].voices) >= MIN_VOICES:
            change, error = pair[1].mean - pair[0].mean, _Z * sqrt(pair[0].error ** 2 + pair[1].error ** 2)
            yield name, (change, change - error, change + error)


def _name_most(visits: Iterable[Visit], read: Callable[[Visit], Iterable[str]]) -> list[tuple[str, int]]:
    voices = {(name, visit.search.client) for visit in visits for name in read(visit) if name}
    counted = Counter(name for name, _ in voices)
    return sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:_NUM_NAMED]


def read_drift(run_dir: Path) -> Drift:
    """The drift of a run, by its feedback and its index. Raises ArtifactError where the index has not finished, or a file cannot
    be read; DataError where the run has no feedback; and SearchIndexError where the index cannot be read."""
    from drag_ray.search.searcher import Searcher

    require_manifest(run_dir / "index", "python jobs/index.py")
    events = read_events(require_feedback(run_dir))
    searcher = Searcher(run_dir / "index" / "search_index")
    return measure_drift(events, lambda word: all(map(searcher.doc_freq, searcher.analyze(word))))


def format_drift(drift: Drift, run_dir: Path) -> str:
    """The report for people."""
    lines = [f"{'week from':<12}{'voices':>8}" + "".join(f"{name:>15}" for name in FIGURES)]
    for start, figures in drift.weeks.items():
        shares = [f"{figures[name].mean:15.3f}" if name in figures else f"{'-':>15}" for name in FIGURES]
        lines.append(f"{format_day(start):<12}{figures[OPENED].voices:>8,}" + "".join(shares))
    for name, (change, low, high) in drift.changes.items():
        lines.append(f"{name}: {change:+.3f} [{low:+.3f}, {high:+.3f}] in the last week against the time before")
    for title, named in (("new words", drift.new_words), ("questions without hits", drift.without_hits)):
        if named:
            lines.append(f"{title}, with voices: " + ", ".join(f"{name} {number:,}" for name, number in named))
    return "\n".join([*lines, _advise(drift, run_dir)])


def _advise(drift: Drift, run_dir: Path) -> str:
    if not drift.changes:
        return f"Too few voices to tell: {MIN_VOICES} are needed in the last week, and before it."
    if not drift.reasons:
        return "No figure is significantly worse: no need to train again."
    words = " Look whether documents are missing, too." if {NO_HITS, NEW_WORDS} & set(drift.reasons) else ""
    return f"Worse than before: {', '.join(drift.reasons)}. Train again, from: drag-ray learn {run_dir}.{words}"
