"""Searches with what was said about them, and the search at which somebody who asked again has arrived."""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise

from drag_ray.feedback.config import VoiceKind
from drag_ray.feedback.events import Event, Mark, ShownSearch

_WORD = re.compile(r"\w+")
_PAUSE_S = 30 * 60
"""after which somebody who comes back wants something else, as is usual in the analysis of logs"""
_MIN_OVERLAP = 0.3
"""Share of their words (Jaccard) that two questions of a session have in common where the second asks the first again."""
_COMMON_SHARE, _COMMON_NUMBER = 0.1, 5
"""Words of so many sessions, by share and by number, say nothing of what is asked"""


@dataclass(slots=True)
class Visit:
    """A search, the marks of the pages that it has shown in their order, and the searches that were said to ask it `again`."""

    search: ShownSearch
    marks: list[Mark] = field(default_factory=list[Mark])
    again: list[str] = field(default_factory=list[str])

    def list_clicks(self) -> list[Mark]:
        """The pages that were opened, in their order."""
        return [mark for mark in self.marks if mark.action == "opened"]

    def list_verdicts(self) -> list[Mark]:
        """The last word, right or wrong, of each client on each page."""
        said = (mark for mark in self.marks if mark.action != "opened")
        return list({(mark.client, mark.page): mark for mark in said}.values())

    def name_voice(self, client: str, voices: VoiceKind) -> Hashable:
        """The one who counts once: a client, or its session."""
        return (client, self.search.session) if voices == "session" else client

    @property
    def order(self) -> tuple[int, str]:
        """The order of visits."""
        return self.search.time, self.search.id


def list_visits(events: Iterable[Event], counts: Counter[str]) -> list[Visit]:
    """The searches in their order with the marks that belong to them. What belongs to none is counted: `unknown_search`, whose
    search has been removed or was never there, and `page_not_shown`, at that rank, which an endpoint refuses."""
    marks: list[Mark] = []
    visits: dict[str, Visit] = {}
    for event in events:
        if isinstance(event, Mark):
            marks.append(event)
        elif isinstance(event, ShownSearch):
            visits[event.id] = Visit(event)
    for mark in sorted(marks, key=lambda mark: mark.time):
        visit = visits.get(mark.search)
        if visit is None:
            counts["unknown_search"] += 1
        elif mark.action == "asked_again":
            visit.again.append(mark.next)
        elif mark.page is None or mark.page not in visit.search.pages[max(0, mark.rank - 1) : max(0, mark.rank)]:
            counts["page_not_shown"] += 1
        else:
            visit.marks.append(mark)
    return sorted(visits.values(), key=lambda visit: visit.order)


@dataclass(frozen=True, slots=True)
class End:
    """The last search of those that asked the same again; `is_said` where clients have said so of each, and it is not only
    inferred."""

    visit: Visit
    is_said: bool


def find_ends(visits: Sequence[Visit]) -> dict[str, End]:
    """The last search of those that asked the same again, by the ids of all that were asked again, of visits in their order.

    A search asks another one again where a client has said so, or where it comes next in its session, before half an hour is
    over, with some of the same words.
    """
    successors: dict[str, End] = {}
    sessions = _list_sessions(visits)
    by_id = {visit.search.id: visit for visit in visits}
    common = _find_common(sessions)
    for turns in sessions:
        for visit, following in pairwise(turns):
            if _asks_again(visit.search, following.search, common):
                successors[visit.search.id] = End(following, is_said=False)
    for visit in visits:
        for name in visit.again:
            if (following := by_id.get(name)) and following.order > visit.order:  # so that nothing goes round in circles
                successors[visit.search.id] = End(following, is_said=True)
    ends: dict[str, End] = {}
    for visit in reversed(visits):
        if following := successors.get(visit.search.id):
            last = ends.get(following.visit.search.id, following)
            ends[visit.search.id] = End(last.visit, last.is_said and following.is_said)
    return ends


def _list_sessions(visits: Sequence[Visit]) -> list[list[Visit]]:
    sessions: dict[tuple[str, str], list[Visit]] = defaultdict(list)
    for visit in visits:
        if visit.search.session:
            sessions[visit.search.client, visit.search.session].append(visit)
    return list(sessions.values())


def _find_common(sessions: Sequence[Sequence[Visit]]) -> set[str]:
    """The words that sessions of all kinds have, in whatever language: `how`, `the`."""
    numbers = Counter(word for turns in sessions for word in set[str]().union(*(_list_words(turn.search) for turn in turns)))
    return {word for word, number in numbers.items() if number > max(_COMMON_NUMBER, _COMMON_SHARE * len(sessions))}


def _list_words(search: ShownSearch) -> set[str]:
    return set(_WORD.findall(search.question.casefold()))


def _asks_again(first: ShownSearch, second: ShownSearch, common: Set[str]) -> bool:
    if second.time - first.time > _PAUSE_S or normalize(first.question) == normalize(second.question):
        return False
    words = [_list_words(search) - common for search in (first, second)]
    return len(words[0] & words[1]) >= _MIN_OVERLAP * len(words[0] | words[1]) > 0


def normalize(question: str) -> str:
    """The form that equal questions have in common: their words, whatever their case, with what stands between them."""
    return " ".join(question.casefold().split())
