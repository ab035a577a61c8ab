"""The champion of an endpoint: who answers requests that name no model. A promotion changes it while the endpoint runs."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from drag_ray.errors import ArtifactError
from drag_ray.feedback.ledger import Contender, Ledger, Trial, locate
from drag_ray.serve.config import CHAMPION, QUESTION_ALONE
from drag_ray.serve.search.messages import QuestionRequest, SearchRequest

_READ_EVERY_S = 1.0
_OWN_WISHES = ("preset", "question_weight", "retrieval", "rerank")

_RequestT = TypeVar("_RequestT", bound=QuestionRequest)
_logger = logging.getLogger(__name__)


class Champions:
    """Knows who answers: by the ledger of the run, which is looked at again each second. `trial` is that of the endpoint's
    options."""

    def __init__(self, run_dir: Path, trial: Trial | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._run_dir = run_dir
        self._started_trial = trial
        self._clock = clock
        self._looked_at = float("-inf")
        self._size = -1
        self._champion: Contender | None = None
        self._trial: Trial | None = None

    def find(self) -> Contender | None:
        """The champion; None where the endpoint's own choice answers."""
        self._look()
        return self._champion

    def find_trial(self) -> Trial | None:
        """The trial, until the champion changes."""
        self._look()
        return self._trial

    def resolve(self, request: _RequestT) -> _RequestT:
        """The request to the model that stands for the champion, where it names none or `champion`."""
        if request.model not in ("", CHAMPION):
            return request
        champion = self.find()
        return call_on(champion, request) if champion else request.model_copy(update={"model": ""})

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked_at < _READ_EVERY_S:
            return
        self._looked_at = now
        path = locate(self._run_dir)
        try:
            size = path.stat().st_size if path.exists() else 0
            if size == self._size:
                return
            ledger = Ledger(self._run_dir)
        except (ArtifactError, OSError) as error:
            _logger.error("the champion stays as it is: %s", error)
            return
        self._size = size  # it only grows
        own = self._started_trial
        self._trial = own if own and ledger.trial and ledger.trial.id == own.id else None
        self._champion = ledger.changes[-1].champion if ledger.changes else own and own.champion


def call_on(contender: Contender, request: _RequestT) -> _RequestT:
    """The request to a contender; what it asks for itself stays."""
    changes: dict[str, object] = {"model": contender.model}
    if request.retrieval is None:
        changes["retrieval"] = contender.retrieval
    if request.rerank is None:
        changes["rerank"] = contender.rerank
    if isinstance(request, SearchRequest):
        changes["reranker"] = request.reranker or contender.reranker
    elif contender.model == QUESTION_ALONE:
        changes["model"] = ""  # an agent needs a model
    return request.model_copy(update=changes)


def leaves_choice(request: SearchRequest) -> bool:
    """True for a request of text that leaves to the endpoint who answers it, and how."""
    names_nobody = request.model in ("", CHAMPION) and not request.reranker and not request.images
    return names_nobody and all(getattr(request, name) is None for name in _OWN_WISHES)
