"""Optimises instructions by GEPA: Agrawal et al., GEPA: Reflective Prompt Evolution Can Outperform Reinforcement Learning (2025).

A proposal is what the model makes of its own instructions, having been shown what came of them on a few training questions. One
that does better on these is validated, and the next proposal is made from one that is the best for some validation question.
"""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from gepa.api import optimize

from drag_ray.file_access import writing
from drag_ray.prompt.adapter import COMPONENT, InstructionsAdapter
from drag_ray.prompt.budget import compute_metric_calls
from drag_ray.prompt.candidates import CandidateLog
from drag_ray.prompt.engines import PromptEngine
from drag_ray.prompt.questions import QuestionSets

_BEST_UTILITY = 1.0
"""of every question of a minibatch: nothing is left to learn from it"""


@dataclass(frozen=True, slots=True)
class Optimisation:
    """What came of an optimisation. Scores are means over the validation questions, by candidate; 0 is the one it began with, and
    `question_score` that of the questions searched as they stand.
    """

    instructions: tuple[str, ...]
    scores: tuple[float, ...]
    question_score: float
    num_rollouts: int
    num_failed: int
    log: CandidateLog

    @property
    def best(self) -> int:
        """The candidate with the highest score, the first of equals."""
        return max(range(len(self.scores)), key=self.scores.__getitem__)


class _LogFile:
    """GEPA's own account of what it does, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def log(self, message: str) -> None:
        with writing(self._path), self._path.open("a", encoding="utf-8") as stream:
            stream.write(f"{message}\n")


def optimise(
    instructions: str,
    engine: PromptEngine,
    questions: QuestionSets,
    *,
    max_rollouts: int,
    minibatch_size: int,
    max_failure_rate: float,
    seed: int,
    log_path: Path,
) -> Optimisation:
    """Look for instructions that are better than these.

    Args:
        instructions: what to begin with.
        engine: rolls out and proposes.
        questions: to propose from and to choose by.
        max_rollouts: rollouts at most; the last ones are left where another proposal might not fit.
        minibatch_size: questions that a proposal is made from.
        max_failure_rate: share of a batch that may fail with the instructions that it began with; others may be so bad that
            nothing comes of them.
        seed: of GEPA's choices.
        log_path: where GEPA's own account goes.

    Raises:
        ConfigError: `max_rollouts` is too little for one proposal.
        PromptTooLongError: a request for a proposal does not fit into the model's context.
        EngineDiedError: the model answers no more.
        TooManyFailuresError: with the instructions that it began with more rollouts failed than may.
    """
    max_metric_calls = compute_metric_calls(max_rollouts, len(questions.validation), minibatch_size)
    adapter, log = InstructionsAdapter(engine, instructions, max_failure_rate), CandidateLog()
    callbacks: list[Any] = [log]  # it hears of what it asks for, not of all that GEPA's protocol of callbacks has
    log_path.unlink(missing_ok=True)
    result = optimize(
        seed_candidate={COMPONENT: instructions},
        trainset=list(questions.feedback),
        valset=list(questions.validation),
        adapter=adapter,
        reflection_minibatch_size=minibatch_size,
        perfect_score=_BEST_UTILITY,
        max_metric_calls=max_metric_calls,
        stop_callbacks=lambda gepa_state: adapter.failure is not None,
        logger=_LogFile(log_path),
        callbacks=callbacks,
        track_best_outputs=False,
        seed=seed,
    )
    if adapter.failure:
        raise adapter.failure
    return Optimisation(
        instructions=tuple(candidate[COMPONENT] for candidate in result.candidates),
        scores=tuple(result.val_aggregate_scores),
        question_score=fmean(adapter.question_scores[question.id] for question in questions.validation),
        num_rollouts=adapter.num_rollouts,
        num_failed=adapter.num_failed,
        log=log,
    )
