"""Optimises instructions by GEPA: Agrawal et al., GEPA: Reflective Prompt Evolution Can Outperform Reinforcement Learning (2025).

A proposal is what the model makes of its own instructions, having been shown what came of them on a few training questions. One
that does better on these is validated, and the next proposal is made from one that is the best for some validation question.

All follows from the seed and from what the model answers. So an optimisation that goes on after a kill begins anew and is given
the answers of its journal as long as there are any: it comes to the same end. (GEPA's own saved state has neither its random
numbers nor the iteration that was cut short, and asks the model again.)
"""

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any, Protocol

from gepa.api import optimize
from gepa.core.adapter import EvaluationBatch, ProposalFn
from gepa.strategies.instruction_proposal import InstructionProposalSignature
from pydantic import TypeAdapter

from drag_ray.agent.action import collapse_spaces
from drag_ray.agent.prompts import choose_instructions
from drag_ray.agent.scores import compute_utility, find_best_rank, list_ranks
from drag_ray.errors import ConfigError, DragRayError, PromptTooLongError
from drag_ray.prompt.config import PromptSections
from drag_ray.prompt.outcome import OptimisedPrompt
from drag_ray.rollout.failures import check_failure_rate
from drag_ray.storage.appended_lines import append_line, read_lines
from drag_ray.storage.artifacts import compute_fingerprint
from drag_ray.types import Question, Trajectory, Turn

_logger = logging.getLogger(__name__)

_COMPONENT = "instructions"
"""The one component of a candidate: the first paragraph of the system prompt, without the action format."""
_TOLD_APART = (
    "An assistant helps to find pages of a collection of documents. How its replies are written, the language of queries and a "
    "few examples are told to it apart from its instructions, which say what the task is and how it is done well.\n\n"
)
_REPLY_CHARS = 300
"""characters of a reply that are shown"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one rollout: its score (the utility of its best rank, 0 if it failed), what the question is worth by
    itself, what is told of both in the form that GEPA recommends, and why it failed if it did.
    """

    score: float
    question_score: float
    record: dict[str, Any]
    error: str


def build_outcome(trajectory: Trajectory, page_text: str) -> Outcome:
    """The outcome of a rollout; of the right page its record shows `page_text`."""

    def place(rank: int | None) -> str:
        return f"at rank {rank}" if rank else f"not among the first {trajectory.depth}"

    asked, found = trajectory.question_search.rank, find_best_rank(list_ranks(trajectory))
    score, question_score = compute_utility(found, trajectory.depth), compute_utility(asked, trajectory.depth)
    change = "better" if score > question_score else "worse" if score < question_score else "no better"
    came_to = f"With the assistant's reply it is {place(found)}: {change}."
    if trajectory.error:
        came_to = f"The assistant's reply failed: {trajectory.error}"
    feedback = f"The question alone finds the right page {place(asked)}. {came_to}"
    record = {
        "Inputs": {"Question": trajectory.question},
        "Generated Outputs": "\n".join(map(_describe, trajectory.turns)) or "nothing",
        "Feedback": f"{feedback} The right page says: {page_text}" if page_text else feedback,
    }
    return Outcome(score, question_score, record, trajectory.error)


def _describe(turn: Turn) -> str:
    written = collapse_spaces(turn.query or turn.answer.text or turn.call.arguments or turn.raw_text)
    return f"{turn.call.tool or turn.action}: {written[:_REPLY_CHARS]} {turn.call.error}".strip()


class PromptEngine(Protocol):
    """The base model. It rolls out questions, greedily and in their order, and draws a reply to a request, without its reasoning
    (None if it ends within that) and by the request's number; PromptTooLongError if that has no place, EngineDiedError for both.
    """

    def roll_out(self, instructions: str, questions: Sequence[Question]) -> list[Outcome]: ...
    def write(self, request: str, number: int) -> str | None: ...


_LINE = TypeAdapter(tuple[str, list[Outcome] | str | None])


class JournaledEngine:
    """An engine whose answers are kept in a file, a line each, and given again to who asks the same in the same order."""

    def __init__(self, engine: PromptEngine, path: Path) -> None:
        self._engine, self._path = engine, path
        self._kept: dict[str, deque[Any]] = defaultdict(deque)
        for key, answer in read_lines(path, _LINE):
            self._kept[key].append(answer)
        self.num_replayed = 0

    def roll_out(self, instructions: str, questions: Sequence[Question]) -> list[Outcome]:
        """As `PromptEngine`. What has failed is not kept: who goes on tries it again."""
        key = compute_fingerprint("rollouts", instructions, [question.id for question in questions])
        if self._kept[key]:
            self.num_replayed += len(questions)
            return self._kept[key].popleft()
        outcomes = self._engine.roll_out(instructions, questions)
        if not any(outcome.error for outcome in outcomes):
            append_line(self._path, [key, [asdict(outcome) for outcome in outcomes]])
        return outcomes

    def write(self, request: str, number: int) -> str | None:
        """As `PromptEngine`."""
        key = compute_fingerprint("reply", request, number)
        if not self._kept[key]:
            self._kept[key].append(self._engine.write(request, number))
            append_line(self._path, [key, self._kept[key][-1]])
        return self._kept[key].popleft()


def optimise(
    sections: PromptSections, engine: PromptEngine, feedback: list[Question], validation: list[Question], max_rollouts: int
) -> tuple[OptimisedPrompt, list[dict[str, Any]]]:
    """The best instructions that `max_rollouts` rollouts at most lead to, and a row for each that was tried.

    Args:
        feedback: questions to reflect on.
        validation: questions to choose by, GEPA's Pareto set.

    Raises:
        ConfigError: the rollouts are too few for one proposal.
        PromptTooLongError: a request for a proposal does not fit into the model's context.
        EngineDiedError: the model answers no more.
        TooManyFailuresError: with the agent's own instructions more rollouts failed than may.
    """
    own, minibatch_size, num_validation = choose_instructions(sections.agent), sections.prompt.minibatch_size, len(validation)
    per_proposal = 2 * minibatch_size + num_validation  # at most: a minibatch for its parent, one for itself, and its validation
    if max_rollouts < num_validation + per_proposal:
        raise ConfigError(
            f"prompt.rollouts: got {max_rollouts or 'none, and no collection to take as many as'}, expected at least "
            f"{num_validation + per_proposal}: {num_validation} validation questions twice and a minibatch of {minibatch_size} "
            "twice. Set --prompt.rollouts, or lower prompt.validation_questions and prompt.minibatch_size."
        )
    adapter = _Adapter(engine, own, sections.rollout.max_failure_rate)
    callbacks: list[Any] = [adapter]  # it hears of what it asks for, not of all that GEPA's protocol of callbacks has
    logger: Any = SimpleNamespace(log=_logger.debug)
    result = optimize(
        {_COMPONENT: own},
        feedback,
        validation,
        adapter,
        reflection_lm=adapter.reflect,
        reflection_prompt_template=_TOLD_APART + InstructionProposalSignature.default_prompt_template,
        reflection_minibatch_size=minibatch_size,
        # GEPA looks at its budget only before a proposal, so none begins that might not fit.
        stop_callbacks=lambda gepa_state: bool(adapter.failure) or gepa_state.total_num_evals > max_rollouts - per_proposal,
        logger=logger,
        callbacks=callbacks,
        seed=sections.seed,
    )
    if adapter.failure:
        raise adapter.failure
    scores, outputs = result.val_aggregate_scores, result.best_outputs_valset or {}
    prompt = OptimisedPrompt(
        instructions=result.candidates[result.best_idx][_COMPONENT],
        own_instructions=own,
        score=scores[result.best_idx],
        own_score=scores[0],
        question_score=fmean(best[0][1].question_score for best in outputs.values()),
        num_validation_questions=num_validation,
        rollouts=result.total_metric_calls or 0,
        max_rollouts=max_rollouts,
        failed_rollouts=adapter.num_failed,
        proposals=len(adapter.tried),
        accepted=len(scores) - 1,
        model=sections.engine.model,
        query_mode=sections.agent.query_mode,
        protocol=sections.agent.protocol,
    )
    first = {"iteration": 0, "instructions": own, "candidate": 0, "parent": None}
    first |= {"parent_minibatch_score": None, "minibatch_score": None, "validation_score": scores[0]}
    return prompt, [first, *adapter.tried]


class _Adapter:
    """The search agent as a `GEPAAdapter`, the model that GEPA asks for proposals, and a callback that keeps what became of them.

    `failure` is what kept the model from proposing: GEPA would note it and go on, at the cost of more rollouts.
    """

    propose_new_texts: ProposalFn | None = None  # as GEPA's protocol has it

    def __init__(self, engine: PromptEngine, instructions: str, max_failure_rate: float) -> None:
        self._engine, self._first, self._max_failure_rate = engine, instructions, max_failure_rate
        self._num_requests, self._parent, self._proposal = 0, "", ""
        self.tried: list[dict[str, Any]] = []
        self.num_failed = 0
        self.failure: DragRayError | None = None

    def evaluate(
        self, batch: list[Question], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[Outcome, Outcome]:
        outcomes = self._engine.roll_out(candidate[_COMPONENT], batch)
        errors = Counter(outcome.error for outcome in outcomes if outcome.error)
        if candidate[_COMPONENT] == self._first:  # others may be so bad that nothing comes of them
            check_failure_rate(errors.total(), len(outcomes), self._max_failure_rate, errors)
        self.num_failed += errors.total()
        return EvaluationBatch(outcomes, [outcome.score for outcome in outcomes], outcomes)

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: EvaluationBatch[Outcome, Outcome], components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """The records of rollouts that the model is shown, those that could gain most first."""
        self._parent = candidate[_COMPONENT]
        return {_COMPONENT: [outcome.record for outcome in sorted(eval_batch.outputs, key=lambda outcome: outcome.score)]}

    def reflect(self, prompt: str | list[dict[str, Any]]) -> str:
        """The model's reply to a request; after an error GEPA asks once more, and then makes no proposal of it."""
        self._num_requests += 1
        try:
            reply = self._engine.write(str(prompt), self._num_requests - 1) or ""
        except PromptTooLongError as error:
            if not self.tried:  # later it may be a proposal that is itself too long to be improved
                advice = "Lower prompt.minibatch_size, prompt.page_chars or prompt.max_tokens, or raise engine.max_model_len."
                self.failure = PromptTooLongError(f"the request for other instructions: {error}. {advice}")
            raise
        except DragRayError as error:
            self.failure = error
            raise
        if InstructionProposalSignature.output_extractor(reply.strip())["new_instruction"] in ("", self._parent.strip()):
            raise ValueError("nothing new was written")
        return reply

    def on_proposal_end(self, event: Mapping[str, Any]) -> None:
        """Keep the text of a proposal until it is known what became of it."""
        self._proposal = event["new_instructions"][_COMPONENT]

    def on_iteration_end(self, event: Mapping[str, Any]) -> None:
        """Keep what became of a proposal, if there was one; minibatch scores are sums, and a validation score is a mean."""
        state = event["state"]
        trace = state.full_program_trace[-1]
        if "new_subsample_scores" not in trace:
            return
        before, after, number = sum(trace["subsample_scores"]), sum(trace["new_subsample_scores"]), trace.get("new_program_idx")
        row = {
            "iteration": event["iteration"],
            "instructions": self._proposal,
            "candidate": number,
            "parent": trace["selected_program_candidate"],
            "parent_minibatch_score": before,
            "minibatch_score": after,
            "validation_score": None if number is None else state.program_full_scores_val_set[number],
        }
        self.tried.append(row)
        became = "rejected" if number is None else f"validation score {row['validation_score']:.3f}"
        _logger.info(f"prompt: proposal {len(self.tried)}: minibatch score {before:.3f} -> {after:.3f}, {became}")
