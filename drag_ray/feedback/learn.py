"""Questions with evidence from feedback, and reasons for what is left out."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from drag_ray.feedback.config import LearnConfig
from drag_ray.feedback.events import Event, Mark
from drag_ray.feedback.positions import Look, PositionCurve, estimate_curve
from drag_ray.feedback.sessions import End, Visit, find_ends, list_visits, normalize
from drag_ray.storage.artifacts import compute_fingerprint
from drag_ray.types import Evidence, Question

CATEGORY = "feedback"
_LOOKS_PER_VOICE = 1000
"""of which the position curve is estimated: no voice makes it by itself"""
Reason = Literal[
    "no_feedback", "contradictory", "marked_wrong", "few_voices", "seldom_opened", "one_voice", "page_gone", "test_question"
]
"""Of a question that is left out: nobody said anything; no page was marked right more often than wrong; its pages were marked
wrong; too few voices opened any page, or too few of those who saw it; its pages rest on one voice that has had its share; its
pages are not in the index any more; it is a test question of the run."""
_STRENGTH: tuple[Reason, ...] = ("one_voice", "contradictory", "marked_wrong", "seldom_opened", "few_voices", "no_feedback")
"""Reasons of single pages: the first that holds is that of the question."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A question of which nothing was made."""

    question: str
    reason: Reason


@dataclass
class Lessons:
    """Outcome of feedback: questions with their evidence, and counts of what was read, and of what could not be used."""

    questions: list[Question] = field(default_factory=list[Question])
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])
    counts: Counter[str] = field(default_factory=Counter[str])
    curve: PositionCurve = field(default_factory=PositionCurve)


@dataclass(slots=True)
class _PageTally:
    """Voices on a page for a question. Each counts once."""

    shown: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    """the rank at which each voice has opened it, or else has seen it first"""
    opened: set[Hashable] = field(default_factory=set[Hashable])
    verdicts: dict[Hashable, bool] = field(default_factory=dict[Hashable, bool])
    """of each voice the last: true for right; most pages have none, and a dictionary of none is small"""

    @property
    def right(self) -> set[Hashable]:
        """The voices that say that it is."""
        return {voice for voice, is_right in self.verdicts.items() if is_right}

    @property
    def wrong(self) -> set[Hashable]:
        """The voices that say that it is wrong."""
        return self.verdicts.keys() - self.right

    def see(self, voice: Hashable, rank: int, is_opened: bool = False) -> None:
        if is_opened and voice not in self.opened:
            self.opened.add(voice)
            self.shown[voice] = rank
        self.shown.setdefault(voice, rank)


@dataclass(slots=True)
class _Need:
    """A question as it was asked, and the voices on its pages."""

    first_time: int
    spellings: Counter[str] = field(default_factory=Counter[str])
    pages: defaultdict[Evidence, _PageTally] = field(default_factory=lambda: defaultdict(_PageTally))


def learn(events: Iterable[Event], config: LearnConfig) -> Lessons:
    """Make questions of feedback.

    A page is evidence of a question where more voices have marked it right than wrong; where as many or more have marked it wrong
    it is set aside. A page that nobody has marked right is evidence where at least `min_voices` have opened it, for each voice
    that has marked it wrong as many again, and `min_relevance` of those who looked: clicks are weighted by the inverse of the
    chance of a look at their rank. What was opened before the question was asked again does not count, for it did not help; what
    is marked or opened last at the end answers the earlier questions too. Where it is only inferred that the question was asked
    again, a mark at the end counts for them no more than a click.
    A client, or session, counts once for a page, whatever it sends.
    """
    lessons = Lessons()
    visits = list_visits(events, lessons.counts)
    needs = _gather(visits, lessons.counts, config)
    lessons.curve = estimate_curve(_list_looks(visits, needs, config))
    _decide(needs, lessons, config)
    return lessons


def _gather(visits: Sequence[Visit], counts: Counter[str], config: LearnConfig) -> dict[str, _Need]:
    """The questions that were asked, by their words, with the voices on those of their pages about which something was said."""
    needs: dict[str, _Need] = {}
    ends = find_ends(visits)
    for visit in visits:
        counts["searches"] += 1
        counts["marks"] += len(visit.marks)
        if not visit.search.question.strip():
            counts["no_text"] += 1
            continue
        need = needs.setdefault(normalize(visit.search.question), _Need(visit.search.time))
        need.spellings[visit.search.question.strip()] += 1
        counts["opened_and_asked_again"] += _add_marks(need, visit, ends.get(visit.search.id), config)
    for visit, rank, _, tally in _list_impressions(visits, needs):
        tally.see(visit.name_voice(visit.search.client, config.voices), rank)
    return needs


def _add_marks(need: _Need, visit: Visit, end: End | None, config: LearnConfig) -> int:
    """Take what was said into the tally of its question; returns the clicks that do not count since it was asked again."""
    verdicts, clicks = _choose_marks(visit, end)
    for mark in verdicts:
        need.pages[_name_page(mark)].verdicts[visit.name_voice(mark.client, config.voices)] = mark.action == "right"
    for mark in clicks:
        need.pages[_name_page(mark)].see(visit.name_voice(mark.client, config.voices), mark.rank, is_opened=True)
    return len(visit.list_clicks()) if end else 0


def _list_impressions(visits: Iterable[Visit], needs: Mapping[str, _Need]) -> Iterator[tuple[Visit, int, Evidence, _PageTally]]:
    """The pages that each visit has shown, with their ranks, of those about which somebody said something."""
    for visit in visits:
        need = needs.get(normalize(visit.search.question))
        for rank, page in enumerate(visit.search.pages if need and need.pages else (), start=1):
            if need and page in need.pages:
                yield visit, rank, page, need.pages[page]


def _choose_marks(visit: Visit, end: End | None) -> tuple[list[Mark], list[Mark]]:
    """The verdicts and the clicks that count for the question of a visit; its own verdicts come last."""
    if end is None:
        return visit.list_verdicts(), visit.list_clicks()
    found = [mark for mark in end.visit.list_verdicts() if mark.action == "right"]
    carried = found if end.is_said else []
    return [*carried, *visit.list_verdicts()], [] if carried else found or end.visit.list_clicks()[-1:]


def _name_page(mark: Mark) -> Evidence:
    assert mark.page, "marks of pages alone"
    return mark.page


def _list_looks(visits: Iterable[Visit], needs: Mapping[str, _Need], config: LearnConfig) -> Iterator[Look]:
    """The first look of each voice at each page of a question, and so many of a voice at most; clicks that are carried over from
    another question are none."""
    seen: set[tuple[Hashable, int]] = set()
    numbers = Counter[Hashable]()
    for visit, rank, page, tally in _list_impressions(visits, needs):
        voice, item = visit.name_voice(visit.search.client, config.voices), id(tally)
        if numbers[voice] < _LOOKS_PER_VOICE and (voice, item) not in seen:
            seen.add((voice, item))
            numbers[voice] += 1
            yield Look(voice, item, rank, any(mark.page == page for mark in visit.list_clicks()))


def _decide(needs: dict[str, _Need], lessons: Lessons, config: LearnConfig) -> None:
    """Make a question of each need that has evidence, the oldest first, as long as the voices on it have a say."""
    alone = Counter[Hashable]()
    for text, need in sorted(needs.items(), key=lambda item: (item[1].first_time, item[0])):
        reasons: set[Reason] = {"no_feedback"}
        evidence: list[Evidence] = []
        for page, tally in sorted(need.pages.items(), key=lambda item: (item[0].file, item[0].page_number)):
            reason = _judge(tally, lessons.curve, config)
            if reason is None and len(voices := tally.right or tally.opened) == 1:
                [voice] = voices
                alone[voice] += 1
                reason = "one_voice" if alone[voice] > config.max_alone else None
            if reason is None:
                evidence.append(page)
            else:
                reasons.add(reason)
                lessons.counts[f"pages_{reason}"] += 1
        spelling = need.spellings.most_common(1)[0][0]
        if evidence:
            name = f"{CATEGORY}-{compute_fingerprint(text)}"
            lessons.questions.append(Question(name, spelling, tuple(evidence), category=CATEGORY))
        else:
            lessons.left_out.append(LeftOut(spelling, next(reason for reason in _STRENGTH if reason in reasons)))


def _judge(tally: _PageTally, curve: PositionCurve, config: LearnConfig) -> Reason | None:
    """The reason why a page is no evidence; None where it is."""
    if tally.right:
        return None if len(tally.right) > len(tally.wrong) else "contradictory"
    opened = tally.opened - tally.wrong
    if len(opened) < config.min_voices * (1 + len(tally.wrong)):
        return "marked_wrong" if tally.wrong else "few_voices"
    weight = sum(1 / curve.chance(tally.shown[voice]) for voice in opened)
    return None if weight >= config.min_relevance * len(tally.shown) else "seldom_opened"
