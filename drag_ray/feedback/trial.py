"""The votes of a trial, its figures, and what they decide."""

import time
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drag_ray.errors import ConfigError, DataError
from drag_ray.feedback.events import CHALLENGER_TEAM, CHAMPION_TEAM, Event, Mark, ShadowRanks, ShownSearch
from drag_ray.feedback.ledger import Change, Figures, Ledger, Trial, format_day, locate
from drag_ray.feedback.log import DIR_NAME, read_events
from drag_ray.feedback.sequential_test import Decision, SequentialTest, to_e_value
from drag_ray.feedback.sessions import Visit, list_visits
from drag_ray.types import Evidence

CLOSED_AFTER_S = 30 * 60
"""Marks count that come by then. A vote is counted once its search is closed, and never changes: the test needs that."""
_WORTH = {CHALLENGER_TEAM: 1, CHAMPION_TEAM: -1}
_SAID: Mapping[Decision | None, str] = {
    "better": "the challenger is better",
    "worse": "the challenger is worse",
    "equal": "there is no relevant difference",
    None: "undecided",
}


@dataclass
class Standing:
    """The state of a trial.

    The test is of the votes up to the first decision that could be made; `later` ones do not count, and `ties` are voices that
    have said something and prefer neither so far. Of the searches that have taken part `failed` ones had no pages of the
    challenger, and `open` ones do not count yet. The shadow has for each voice the mean of 1 / rank of what it opened or marked
    right: the champion's, and the challenger's."""

    trial: Trial
    test: SequentialTest
    decision: Decision | None = None
    ties: int = 0
    later: int = 0
    searches: Counter[str] = field(default_factory=Counter[str])
    shadow: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    change: Change | None = None

    def __str__(self) -> str:
        """The state for people."""
        trial, figures, searches = self.trial, self.figures, self.searches
        lines = [
            f"trial {trial.id}: {trial.challenger.describe()} against {trial.champion.describe()}, {trial.mode}, "
            f"since {format_day(trial.time)}",
            f"searches: {searches['all']:,}, of which {searches['open']:,} still open, {searches['failed']:,} without the "
            "challenger",
        ]
        if trial.mode == "shadow":
            lines.append(_describe_shadow(self))
        else:
            low, high = figures.interval
            lines += [
                f"voices: {figures.voices:,}: {figures.wins:,} for the challenger, {figures.losses:,} for the champion, "
                f"{figures.ties:,} for neither",
                f"share won: {low:.3f} to {high:.3f}; e-values: {figures.e_better:.3g} for better, {figures.e_worse:.3g} for "
                f"worse, of {1 / trial.alpha:g} that are needed",
                f"decision: {_describe_decision(self)}",
            ]
        return "\n".join([*lines, _describe_change(self.change)])

    @property
    def figures(self) -> Figures:
        """The figures to keep."""
        test, voices = self.test, self.test.wins + self.test.losses + self.ties
        better, worse = to_e_value(test.log_e_better), to_e_value(test.log_e_worse)
        return Figures(self.decision, voices, test.wins, test.losses, self.ties, better, worse, test.compute_interval())


def measure_trial(trial: Trial, events: Iterable[Event], now: float) -> Standing:
    """The state of a trial at a moment.

    A voice votes once, by its first searches on which it prefers either side: a page that it opened or marked right counts for
    the side that put it there, one that it marked wrong counts against it. Only who has searched has a say.
    """
    events = [event for event in events if not isinstance(event, ShownSearch) or _is_of(event, trial)]
    standing = Standing(trial, SequentialTest(trial.alpha, trial.margin))
    closed: list[Visit] = []
    for visit in list_visits(events, Counter()):
        is_closed = visit.search.time + CLOSED_AFTER_S <= now
        has_failed = visit.search.part is not None and visit.search.part.has_failed
        standing.searches.update(all=1, failed=has_failed, open=not is_closed)
        closed += [visit] if is_closed else []
    _vote(standing, closed)
    ranks = {event.search: event.ranks for event in events if isinstance(event, ShadowRanks)}
    standing.shadow = list(_compare_ranks(closed, ranks, trial))
    return standing


def _is_of(search: ShownSearch, trial: Trial) -> bool:
    return search.part is not None and search.part.trial == trial.id


def _vote(standing: Standing, closed: Sequence[Visit]) -> None:
    preferred = defaultdict[Hashable, list[int]](list)
    spoken, voted = set[Hashable](), set[Hashable]()
    for visit in closed:
        voice = visit.name_voice(visit.search.client, standing.trial.voices)
        worths = list(_list_worths(visit))
        if worths:
            spoken.add(voice)
        balance = sum(worths)
        if not balance or voice in voted:
            continue
        preferred[voice].append(1 if balance > 0 else -1)
        if len(preferred[voice]) < standing.trial.searches:
            continue
        voted.add(voice)
        if standing.decision:
            standing.later += 1
        elif total := sum(preferred[voice]):
            standing.test.add(total > 0)
            standing.decision = standing.test.decide()
    standing.ties = len(spoken) - standing.test.wins - standing.test.losses - standing.later


def _list_last_words(visit: Visit) -> dict[Evidence, Mark]:
    """The last word in time on each page, of who searched: a verdict, or else that it was opened."""
    words: dict[Evidence, Mark] = {}
    for mark in visit.marks:
        is_verdict = mark.action != "opened"
        counts = mark.client == visit.search.client and mark.time <= visit.search.time + CLOSED_AFTER_S
        if counts and mark.page and (is_verdict or mark.page not in words):
            words[mark.page] = mark
    return words


def _list_worths(visit: Visit) -> Iterator[int]:
    """The worth to the challenger of each page on which there is a word."""
    teams = visit.search.part.teams if visit.search.part else ""
    for page, mark in _list_last_words(visit).items():
        place = visit.search.pages.index(page)
        if place < len(teams) and teams[place] in _WORTH:
            yield _WORTH[teams[place]] * (-1 if mark.action == "wrong" else 1)


def _compare_ranks(closed: Iterable[Visit], ranks: Mapping[str, Sequence[int]], trial: Trial) -> Iterator[tuple[float, float]]:
    by_voice = defaultdict[Hashable, list[tuple[float, float]]](list)
    for visit in closed:
        others = ranks.get(visit.search.id, ())
        for page, mark in _list_last_words(visit).items():
            place = visit.search.pages.index(page)
            if mark.action != "wrong" and place < len(others):
                voice = visit.name_voice(visit.search.client, trial.voices)
                by_voice[voice].append((1 / (place + 1), 1 / others[place] if others[place] else 0.0))
    for pairs in by_voice.values():
        yield sum(pair[0] for pair in pairs) / len(pairs), sum(pair[1] for pair in pairs) / len(pairs)


def _describe_shadow(standing: Standing) -> str:
    number = len(standing.shadow)
    if not number:
        return "nothing that was shown was opened or marked right so far"
    means = [sum(pair[side] for pair in standing.shadow) / number for side in (0, 1)]
    return (
        f"mean 1/rank of what {number:,} voices opened or marked right: {means[0]:.3f} as it was shown, {means[1]:.3f} by the "
        "challenger. Users open pages that are shown first, so this favours the champion and decides nothing: interleave does"
    )


def _describe_decision(standing: Standing) -> str:
    if standing.trial.mode == "shadow":
        return "a shadow decides nothing; serve.trial.mode interleave does"
    said = _SAID[standing.decision]
    if standing.decision:
        return said + (f" ({standing.later:,} votes came later and do not count)" if standing.later else "")
    more = standing.test.estimate_more()
    return f"{said}; about {more:,} more votes at this rate" if more else f"{said}, and not soon at this rate"


def _describe_change(change: Change | None) -> str:
    if change is None:
        return "champion: nothing was promoted so far"
    forced = ", without the test's word" if change.is_forced else ""
    return f"champion: {change.champion.describe()} since {format_day(change.time)} ({change.action}{forced})"


def read_standing(run_dir: Path) -> Standing:
    """The state of the last trial of a run. Raises DataError where there was no trial and ArtifactError where a file cannot be
    read."""
    ledger = Ledger(run_dir)
    trials = [entry for entry in ledger.entries if isinstance(entry, Trial)]
    if not trials:
        raise DataError(
            f"{locate(run_dir)}: no trial. Serve the run with --serve.feedback.enabled --serve.trial.challenger NAME."
        )
    standing = measure_trial(trials[-1], read_events(run_dir / DIR_NAME), time.time())
    standing.change = ledger.changes[-1] if ledger.changes else None
    return standing


def promote(run_dir: Path, is_forced: bool) -> Change:
    """Make the challenger of the trial that goes on the champion, and record on which figures. Raises ConfigError where no trial
    goes on, or the test has not decided for the challenger and nothing is forced; and what `read_standing` does."""
    standing, ledger = read_standing(run_dir), Ledger(run_dir)
    trial = ledger.trial
    if trial is None:
        last = ledger.changes[-1]
        raise ConfigError(
            f"--promote: no trial goes on; {last.champion.describe()} is the champion since {format_day(last.time)} "
            f"({locate(run_dir)}). Serve the run with --serve.trial.challenger NAME to begin one."
        )
    is_decided = standing.decision == "better"
    if not is_decided and not is_forced:
        raise ConfigError(
            f"--promote: {_describe_decision(standing)}. Wait, or promote all the same with --force, which is recorded."
        )
    now = int(time.time())
    return ledger.append(Change("promote", now, trial.challenger, trial.champion, trial.id, not is_decided, standing.figures))


def roll_back(run_dir: Path) -> Change:
    """Make the champion who it was before the last promotion, and record it. Raises ConfigError where nothing was promoted and
    ArtifactError where the ledger cannot be read or written."""
    ledger = Ledger(run_dir)
    if not ledger.standing_promotions:
        raise ConfigError(f"--rollback: nothing was promoted that is not rolled back ({locate(run_dir)}).")
    last = ledger.standing_promotions[-1]
    return ledger.append(Change("rollback", int(time.time()), last.before, last.champion, last.trial))
