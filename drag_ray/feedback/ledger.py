"""Ledger of a run: who answers for its endpoint since when, and what was tried against it. It is only appended to.

trials/
  ledger.jsonl        a trial that began, a promotion or a rollback a line
"""

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import TypeAdapter

from drag_ray.feedback.config import TrialConfig, TrialMode, VoiceKind
from drag_ray.feedback.sequential_test import Decision
from drag_ray.search.config import RetrievalName
from drag_ray.storage.appended_lines import append_line, parse_lines
from drag_ray.storage.file_access import make_private, reading

DIR_NAME = "trials"
"""in the folder of a run"""
_LEDGER_NAME = "ledger.jsonl"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Contender:
    """A model that can answer, by its name in requests, the fingerprint of its adapter's weights, and how it searches: None and
    empty for what the endpoint does by itself."""

    model: str
    weights: str = ""
    retrieval: RetrievalName | None = None
    rerank: bool | None = None
    reranker: str = ""

    def describe(self) -> str:
        """The contender in a few words."""
        rerank = {None: "", True: "reranked", False: "not reranked"}[self.rerank]
        order = f"ordered by {self.reranker}" if self.reranker else ""
        return ", ".join(filter(None, (self.model, self.retrieval, rerank, order)))


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial and its terms, which are set before anything is seen: those of `TrialConfig` of the same names."""

    id: str
    time: int
    champion: Contender
    challenger: Contender
    mode: TrialMode
    alpha: float
    margin: float
    searches: int
    voices: VoiceKind
    kind: Literal["trial"] = "trial"


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a trial at a moment."""

    decision: Decision | None
    voices: int
    wins: int
    losses: int
    ties: int
    e_better: float
    e_worse: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the champion, by the figures of a trial; forced where it was against the test's decision, or without one."""

    action: Literal["promote", "rollback"]
    time: int
    champion: Contender
    before: Contender
    trial: str = ""
    is_forced: bool = False
    figures: Figures | None = None
    kind: Literal["change"] = "change"


_ENTRY: TypeAdapter[Trial | Change] = TypeAdapter(Trial | Change)
_EntryT = TypeVar("_EntryT", Trial, Change)


class Ledger:
    """The entries of a run's ledger, the oldest first. Raises ArtifactError where it cannot be read. `run_dir`: folder of the
    run."""

    def __init__(self, run_dir: Path) -> None:
        self._path = locate(run_dir)
        with reading(self._path):
            data = self._path.read_bytes() if self._path.is_file() else b""
        whole = data[: data.rfind(b"\n") + 1]
        self.entries = list(parse_lines(self._path, whole.splitlines(), _ENTRY))

    @property
    def changes(self) -> list[Change]:
        """All changes of the champion."""
        return [entry for entry in self.entries if isinstance(entry, Change)]

    @property
    def trial(self) -> Trial | None:
        """The trial that goes on: the last one that began, unless the champion has changed since."""
        last = self.entries[-1] if self.entries else None
        return last if isinstance(last, Trial) else None

    @property
    def standing_promotions(self) -> list[Change]:
        """The promotions that were not rolled back."""
        standing: list[Change] = []
        for change in self.changes:
            if change.action == "promote":
                standing.append(change)
            elif standing:
                standing.pop()
        return standing

    def append(self, entry: _EntryT) -> _EntryT:
        """Record an entry. Raises ArtifactError where the disk refuses."""
        make_private(self._path.parent)
        append_line(self._path, asdict(entry))
        self.entries.append(entry)
        return entry


def locate(run_dir: Path) -> Path:
    """The ledger of a run, there or not."""
    return run_dir / DIR_NAME / _LEDGER_NAME


def begin_trial(ledger: Ledger, config: TrialConfig, default_model: str, read_weights: Callable[[str], str]) -> Trial | None:
    """The trial of the options, recorded; one of the same contenders and terms goes on. None where the challenger is the
    champion, as after its promotion, which the log says. Raises ArtifactError where the ledger cannot be written. `read_weights`:
    the fingerprint of a model's adapter, by its name."""
    weights = read_weights(config.challenger)
    challenger = Contender(config.challenger, weights, config.retrieval, config.rerank, config.reranker)
    first = config.champion or default_model
    champion = ledger.changes[-1].champion if ledger.changes else Contender(first, read_weights(first))
    if champion == challenger:
        _logger.warning(f"no trial: serve.trial.challenger {config.challenger!r} is the champion already")
        return None
    terms = {name: getattr(config, name) for name in ("mode", "alpha", "margin", "searches", "voices")}
    trial = Trial(secrets.token_hex(6), int(time.time()), champion, challenger, **terms)
    if ledger.trial and replace(ledger.trial, id=trial.id, time=trial.time) == trial:
        return ledger.trial
    return ledger.append(trial)


def format_day(moment: int) -> str:
    """The date of a moment (UTC)."""
    return str(datetime.fromtimestamp(moment, UTC).date())
