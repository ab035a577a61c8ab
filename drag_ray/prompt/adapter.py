"""The search agent as GEPA knows a system: instructions that are tried on questions, and improved by what came of that."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gepa.core.adapter import EvaluationBatch, ProposalFn

from drag_ray.errors import DragRayError, PromptTooLongError
from drag_ray.prompt.engines import PromptEngine
from drag_ray.prompt.feedback import Outcome
from drag_ray.prompt.reflection import read_proposal, render_request
from drag_ray.rollout.failures import check_failure_rate
from drag_ray.types import Question

COMPONENT = "instructions"
"""The one component of a candidate: the first paragraph of the system prompt, without the action format."""

Batch = EvaluationBatch[Outcome, Outcome]


class InstructionsAdapter:
    """A `GEPAAdapter` of questions and their outcomes, which proposes by itself with GEPA's request.

    Args:
        engine: the base model, which rolls out and proposes.
        instructions: that the optimisation begins with.
        max_failure_rate: share of a batch that may fail with them.

    Attributes:
        num_rollouts: that were asked for.
        num_failed: those of them that failed.
        question_scores: of each question that was rolled out, by its id, what it finds by itself.
        failure: what kept the model from proposing. GEPA would note it and go on, at the cost of more rollouts.
    """

    def __init__(self, engine: PromptEngine, instructions: str, max_failure_rate: float) -> None:
        self._engine = engine
        self._first = instructions
        self._max_failure_rate = max_failure_rate
        self._num_requests = 0
        self.propose_new_texts: ProposalFn | None = self._propose  # as GEPA's protocol has it
        self.num_rollouts = 0
        self.num_failed = 0
        self.question_scores: dict[str, float] = {}
        self.failure: DragRayError | None = None

    def evaluate(self, batch: list[Question], candidate: dict[str, str], capture_traces: bool = False) -> Batch:
        """Roll out a batch of questions, all at once.

        Raises:
            TooManyFailuresError: with the instructions that the optimisation began with more of them failed than may.
        """
        outcomes = self._engine.roll_out(candidate[COMPONENT], batch)
        errors = Counter(outcome.error for outcome in outcomes if outcome.error)
        if candidate[COMPONENT] == self._first:
            check_failure_rate(errors.total(), len(outcomes), self._max_failure_rate, errors)
        self.num_rollouts += len(outcomes)
        self.num_failed += errors.total()
        self.question_scores |= {outcome.question_id: outcome.question_score for outcome in outcomes}
        scores = [outcome.score for outcome in outcomes]
        return EvaluationBatch(outputs=outcomes, scores=scores, trajectories=outcomes if capture_traces else None)

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Batch, components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """What the model is shown of each rollout, those that could gain most first."""
        outcomes = sorted(eval_batch.trajectories or [], key=lambda outcome: outcome.score)
        return {name: [outcome.to_record() for outcome in outcomes] for name in components_to_update}

    def _propose(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        """Other instructions; none where the model has written nothing new."""
        own = candidate[COMPONENT]
        try:
            reply = self._reflect(own, reflective_dataset[COMPONENT])
        except PromptTooLongError as error:
            if own != self._first:
                return {}  # a proposal that is itself too long to be improved
            self.failure = PromptTooLongError(
                f"a request for other instructions with a single example: {error}. Lower prompt.max_tokens or prompt.page_chars, "
                "or raise engine.max_model_len."
            )
            raise self.failure from error
        except DragRayError as error:
            self.failure = error
            raise
        proposal = read_proposal(reply) if reply else ""
        return {COMPONENT: proposal} if proposal not in ("", own.strip()) else {}

    def _reflect(self, instructions: str, records: Sequence[Mapping[str, Any]]) -> str | None:
        """The model's reply to as many records as fit into its context, by halves."""
        number, self._num_requests = self._num_requests, self._num_requests + 1
        while True:
            try:
                return self._engine.write(render_request(instructions, records), number)
            except PromptTooLongError:
                if len(records) < 2:
                    raise
            records = records[: len(records) // 2]
