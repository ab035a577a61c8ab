"""Searches of an endpoint of which some take part in its trial: pages of champion and challenger, or the latter in the shadow."""

import asyncio
import logging
from collections.abc import Sequence
from itertools import takewhile
from random import Random
from typing import TypeVar

from drag_ray.feedback.events import CHALLENGER_TEAM, CHAMPION_TEAM, NO_TEAM, TrialPart
from drag_ray.feedback.ledger import Trial
from drag_ray.serve.ingress.limits import RefusalError
from drag_ray.serve.search.champions import Champions, call_on, leaves_choice
from drag_ray.serve.search.feedback_service import FeedbackService, Sender
from drag_ray.serve.search.messages import FoundPage, SearchAnswer, SearchRequest
from drag_ray.serve.search.search_service import SearchService

_PATIENCE_S = 5.0
"""that a request waits for the challenger once it has the champion's pages"""
_SHADOW_S = 60.0
_MAX_SHADOWS = 4
"""challengers that search in the background at a time; requests beyond them have none"""

_Item = TypeVar("_Item")
_logger = logging.getLogger(__name__)


class TrialService:
    """Answers searches, of which a share takes part in the trial of the endpoint."""

    def __init__(self, feedback: FeedbackService, champions: Champions, share: float) -> None:
        self._feedback = feedback
        self._champions = champions
        self._share = share
        self._shadows: set[asyncio.Task[None]] = set()

    async def search(self, service: SearchService, request: SearchRequest, sender: Sender) -> SearchAnswer:
        """The answer with its search id, by the service for the key of the request. Raises RefusalError as
        `SearchService.search`, of the champion alone."""
        trial = self._champions.find_trial()
        nonce, draws = self._feedback.begin()
        takes_part = trial and leaves_choice(request) and draws.random() < self._share
        if trial is None or not takes_part:
            answer = await service.search(request)
            return await self._feedback.note(answer, request.session, sender, nonce)
        if trial.mode == "interleave":
            answer, part = await _interleave(service, request, trial, draws)
            return await self._feedback.note(answer, request.session, sender, nonce, part)
        answer = await service.search(call_on(trial.champion, request))
        noted = await self._feedback.note(answer, request.session, sender, nonce, TrialPart(trial.id))
        self._follow(service, request, trial, noted)
        return noted

    def _follow(self, service: SearchService, request: SearchRequest, trial: Trial, shown: SearchAnswer) -> None:
        """Have the challenger search in the background, unless enough of them do."""
        if len(self._shadows) < _MAX_SHADOWS and shown.search_id:
            task = asyncio.create_task(self._shadow(service, request, trial, shown))
            self._shadows.add(task)
            task.add_done_callback(self._shadows.discard)

    async def _shadow(self, service: SearchService, request: SearchRequest, trial: Trial, shown: SearchAnswer) -> None:
        answer = await _try(service, call_on(trial.challenger, request), _SHADOW_S)
        if answer:
            places = {found.page: found.rank for found in answer.pages}
            await self._feedback.note_shadow(shown.search_id, tuple(places.get(found.page, 0) for found in shown.pages))


async def _interleave(
    service: SearchService, request: SearchRequest, trial: Trial, draws: Random
) -> tuple[SearchAnswer, TrialPart]:
    """The champion's answer with the pages of both in turns; with its own where the challenger gives none in time."""
    trying = asyncio.create_task(_try(service, call_on(trial.challenger, request), None))
    try:
        champion = await service.search(call_on(trial.champion, request))
        await asyncio.wait([trying], timeout=_PATIENCE_S)
        challenger = trying.result() if trying.done() else None
    finally:
        trying.cancel()
    if challenger is None:
        return champion, TrialPart(trial.id, has_failed=True)
    of_champion, of_challenger = ({found.page: found for found in answer.pages} for answer in (champion, challenger))
    number = max(len(of_champion), len(of_challenger))
    shown, teams = interleave(list(of_champion), list(of_challenger), number, draws)
    pages = [
        _place(of_challenger[page] if team == CHALLENGER_TEAM or page not in of_champion else of_champion[page], rank)
        for rank, (page, team) in enumerate(zip(shown, teams, strict=True), start=1)
    ]
    return champion.model_copy(update={"pages": pages}), TrialPart(trial.id, teams)


def interleave(champion: Sequence[_Item], challenger: Sequence[_Item], number: int, random: Random) -> tuple[list[_Item], str]:
    """The first `number` items of both rankings together, each once, and the letter of its team for each: team-draft interleaving
    (Radlinski, Kurup and Joachims, How Does Clickthrough Data Reflect Retrieval Quality?, CIKM 2008).

    Both pick in turns, and a coin says who picks first of each two. What both rankings begin with, at the same ranks, belongs to
    neither, and tells nothing of the two (Chapelle et al., Large-Scale Validation and Analysis of Interleaved Search Evaluation,
    TOIS 2012); so does what one still has where the other is at its end.
    """
    shared = [item for item, _ in takewhile(lambda pair: pair[0] == pair[1], zip(champion, challenger, strict=False))]
    shown = dict.fromkeys(shared[:number], NO_TEAM)
    rankings = {CHAMPION_TEAM: champion, CHALLENGER_TEAM: challenger}
    while len(shown) < number:
        for team in random.sample((CHAMPION_TEAM, CHALLENGER_TEAM), 2):
            left = {name: next((item for item in ranking if item not in shown), None) for name, ranking in rankings.items()}
            if None in left.values() or len(shown) >= number:
                rest = [item for item in (*champion, *challenger) if item not in shown][: number - len(shown)]
                shown |= dict.fromkeys(rest, NO_TEAM)
                return list(shown), "".join(shown.values())
            item = left[team]
            assert item is not None, "looked at above"
            shown[item] = team
    return list(shown), "".join(shown.values())


async def _try(service: SearchService, request: SearchRequest, timeout_s: float | None) -> SearchAnswer | None:
    """The challenger's answer; None where it fails, which the log says, for that is no fault of the request."""
    try:
        async with asyncio.timeout(timeout_s):
            return await service.search(request, tool="trial")
    except (RefusalError, TimeoutError) as error:
        _logger.warning("the challenger of the trial gives no pages: %s", error or "it takes too long")
    except Exception:
        _logger.exception("the challenger of the trial gives no pages")
    return None


def _place(page: FoundPage, rank: int) -> FoundPage:
    """The page at its place. Scores of two rankings do not compare, and would tell whose a page is."""
    return page.model_copy(update={"rank": rank, "score": 1 / rank})
