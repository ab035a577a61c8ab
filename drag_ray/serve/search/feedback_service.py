"""Feedback of an endpoint: gives searches their ids and takes what people say about them, within limits."""

import logging
import time
from array import array
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from random import Random
from typing import TypeVar

from drag_ray.errors import ArtifactError
from drag_ray.feedback.config import FeedbackConfig
from drag_ray.feedback.events import Mark, ShadowRanks, ShownSearch, TrialPart
from drag_ray.feedback.log import EventLog, read_secret
from drag_ray.feedback.search_ids import MAX_PAGES, SHORT_CHARS, IssuedSearch, SearchIds
from drag_ray.serve.ingress.key import Groups
from drag_ray.serve.ingress.limits import RefusalError
from drag_ray.serve.search.messages import AskAnswer, FeedbackAnswer, FeedbackRequest, SearchAnswer
from drag_ray.types import Evidence

MAX_BODY_BYTES = 4096
MARKS_PER_SEARCH, MARKS_PER_CLIENT, MARKS_IN_ALL = 50, 1_000, 50_000
"""in an hour, at each engine: of a search, of an address, and of all that have the key"""
VALID_S = 24 * 3600
"""in which feedback on a search is taken"""
_AHEAD_S = 300
"""that the clock of another machine may be ahead"""
_SLOTS = 2**16
_HOUR_S = 3600.0


@dataclass(frozen=True)
class Sender:
    """Address of who sends a request, and the groups of its key."""

    address: str
    groups: Groups = None


_AnswerT = TypeVar("_AnswerT", SearchAnswer, AskAnswer)
_logger = logging.getLogger(__name__)


class HourlyCounts:
    """Counts within the hour, by names of any number.

    Names share counters where their hashes fall together, so that a count can be too high and never too low. Python's hash of
    texts has a secret of its own in each process: nobody can choose names that fall together with those of somebody else.
    `clock`: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts = array("L", bytes(_SLOTS * array("L").itemsize))
        self._begun = clock()

    def add(self, name: Hashable) -> int:
        """Count a name, and return how often it was counted in this hour."""
        if self._clock() - self._begun > _HOUR_S:
            self._counts = array("L", bytes(_SLOTS * self._counts.itemsize))
            self._begun = self._clock()
        slot = hash(name) % _SLOTS
        self._counts[slot] += 1
        return self._counts[slot]


class FeedbackService:
    """Keeps searches and marks in a folder that has a secret. Safe for many requests at once in one event loop. Raises
    ArtifactError where the secret cannot be read, or the disk refuses."""

    def __init__(self, folder: Path, config: FeedbackConfig, clock: Callable[[], float] = time.time) -> None:
        self._config = config
        self._clock = clock
        self._ids = SearchIds(read_secret(folder))
        self._log = EventLog(folder, config.retention_days, clock)
        self._log.remove_expired()
        self._of_searches, self._of_clients, self._of_all = HourlyCounts(), HourlyCounts(), HourlyCounts()

    def begin(self) -> tuple[bytes, Random]:
        """The part of a search id that no other one has, and draws that belong to it."""
        nonce = self._ids.draw_nonce()
        return nonce, self._ids.seed(nonce)

    async def note(
        self, answer: _AnswerT, session: str, sender: Sender, nonce: bytes = b"", part: TrialPart | None = None
    ) -> _AnswerT:
        """The answer with a search id, once it is kept; without one where it cannot be, which the log says: people search on.
        `nonce` is that of a search that was begun, `part` its part in a trial."""
        pages, now = _list_pages(answer), int(self._clock())
        search_id = self._ids.issue(pages, now, nonce, sender.groups)
        queries = [answer.query or ""] if isinstance(answer, SearchAnswer) else [turn.query for turn in answer.turns]
        event = ShownSearch(
            id=search_id[:SHORT_CHARS],
            time=now,
            client=self._ids.name_client(sender.address),
            session=self._ids.name_session(session),
            question=answer.question if self._config.text else "",
            query=" | ".join(filter(None, queries)) if self._config.text else "",
            model=answer.model,
            pages=tuple(pages),
            part=part,
        )
        try:
            await self._log.append(event)
        except ArtifactError as error:
            _logger.error("a search is not kept, and nobody can say anything about it: %s", error)
            return answer
        return answer.model_copy(update={"search_id": search_id})

    async def note_shadow(self, search_id: str, ranks: tuple[int, ...]) -> None:
        """Keep the ranks that a challenger gives to the pages of a search; the log says where that cannot be."""
        try:
            await self._log.append(ShadowRanks(search_id[:SHORT_CHARS], int(self._clock()), ranks))
        except ArtifactError as error:
            _logger.error("what a challenger has found is not kept: %s", error)

    async def take(self, request: FeedbackRequest, sender: Sender) -> FeedbackAnswer:
        """Keep a mark. Raises RefusalError where the search is unknown, or of a key of other groups (404), or expired (410), it
        did not show the page (400), there are too many marks (429), or the mark cannot be kept (503)."""
        search, client = self._find(request.search_id, "search_id", sender), self._ids.name_client(sender.address)
        page, rank, following = None, 0, ""
        if request.action == "asked_again":
            following = self._find(request.next_search_id, "next_search_id", sender).short
        else:
            page = Evidence(request.file, request.page_number)
            rank = _check_rank(search, page, request.rank)
        self._admit(search.short, client)
        try:
            await self._log.append(Mark(search.short, int(self._clock()), client, request.action, page, rank, following))
        except ArtifactError as error:
            _logger.error("feedback is not kept: %s", error)
            raise RefusalError(503, "the feedback could not be stored; see the endpoint's log.") from None
        return FeedbackAnswer(action=request.action, rank=rank)

    def _find(self, search_id: str, field: str, sender: Sender) -> IssuedSearch:
        search = self._ids.read(search_id, sender.groups)
        if search is None:
            raise RefusalError(404, f"{field} {search_id[:20]!r}: no search of this endpoint was answered with it.")
        if not -_AHEAD_S <= self._clock() - search.time <= VALID_S:
            raise RefusalError(410, f"{field} {search_id[:20]!r}: expired. Feedback is taken for {VALID_S // 3600} hours.")
        return search

    def _admit(self, search: str, client: str) -> None:
        """Count a mark. RefusalError (429) beyond the limits; what is refused counts too, until the hour is over."""
        for counts, name, limit, of_whom in (
            (self._of_searches, search, MARKS_PER_SEARCH, "a search"),
            (self._of_clients, client, MARKS_PER_CLIENT, "a client"),
            (self._of_all, "", MARKS_IN_ALL, "all clients"),
        ):
            if counts.add(name) > limit:
                raise RefusalError(429, f"more than {limit:,} marks of {of_whom} in an hour.", {"Retry-After": "3600"})


def check_size(body: bytes) -> None:
    """RefusalError (413) of a body that is larger than any feedback."""
    if len(body) > MAX_BODY_BYTES:
        raise RefusalError(413, f"feedback has at most {MAX_BODY_BYTES:,} bytes, got {len(body):,}.")


def _check_rank(search: IssuedSearch, page: Evidence, said: int | None) -> int:
    named = f"{page.file[:200]!r}, page {page.page_number}"
    rank = search.find_rank(page)
    if not rank:
        raise RefusalError(400, f"{named}: the search did not show it.")
    if said not in (None, rank):
        raise RefusalError(400, f"rank {said}: the search showed {named} at rank {rank}.")
    return rank


def _list_pages(answer: SearchAnswer | AskAnswer) -> list[Evidence]:
    """The pages that an answer shows, each once, in the order in which they were first shown."""
    found = answer.pages if isinstance(answer, SearchAnswer) else chain.from_iterable(turn.pages for turn in answer.turns)
    return list(dict.fromkeys(shown.page for shown in found))[:MAX_PAGES]
