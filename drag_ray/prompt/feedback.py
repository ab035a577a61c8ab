"""What a rollout is worth to prompt optimisation, and what the model is told of it when it proposes other instructions."""

from dataclasses import dataclass
from typing import Any

from drag_ray.agent.action import collapse_spaces
from drag_ray.agent.scores import compute_utility
from drag_ray.types import ActionKind, Trajectory

_REPLY_CHARS = 300
"""characters of an unreadable reply that are shown"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one rollout came to.

    Attributes:
        score: the utility of the best rank that it reached, 0 if it failed. Its gain over the question is its training's reward,
            but for the costs of replies; the question's part of that is the same for all instructions.
        question_score: the utility of the rank that the question itself finds.
        question: what was asked.
        written: what the model searched for or added.
        feedback: what became of it, in words.
        error: why the rollout failed; empty if it did not.
    """

    question_id: str
    score: float
    question_score: float
    question: str
    written: str
    feedback: str
    error: str = ""

    def to_record(self) -> dict[str, Any]:
        """The outcome in the form that GEPA recommends for a record of its reflective dataset."""
        return {"Inputs": {"Question": self.question}, "Generated Outputs": self.written, "Feedback": self.feedback}


def build_outcome(trajectory: Trajectory, page_text: str) -> Outcome:
    """The outcome of a rollout.

    Args:
        page_text: what is shown of the right page; nothing where it is empty.
    """
    rank, depth = find_best_rank(trajectory), trajectory.depth
    score = compute_utility(rank, depth)
    question_score = compute_utility(trajectory.question_rank, depth)
    parts = [
        f"The question alone finds the right page {_describe_rank(trajectory.question_rank, depth)}.",
        f"The assistant's reply failed: {trajectory.error}"
        if trajectory.error
        else f"With the assistant's reply it is {_describe_rank(rank, depth)}: {_compare(score, question_score)}.",
        f"The right page says: {page_text}" if page_text else "",
    ]
    return Outcome(
        question_id=trajectory.question_id,
        score=score,
        question_score=question_score,
        question=trajectory.question,
        written=_describe_written(trajectory),
        feedback=" ".join(part for part in parts if part),
        error=trajectory.error,
    )


def find_best_rank(trajectory: Trajectory) -> int | None:
    """The best rank of the evidence that a rollout reached, None beyond depth and for one that failed.

    A rollout that expands the question and did not search has found what the question finds, as in an evaluation.
    """
    if trajectory.error:
        return None
    searches = [turn for turn in trajectory.turns if turn.action is ActionKind.SEARCH]
    if not searches and trajectory.query_mode == "expand":
        return trajectory.question_rank
    return min((turn.evidence_rank for turn in searches if turn.evidence_rank is not None), default=None)


def _describe_written(trajectory: Trajectory) -> str:
    expands = trajectory.query_mode == "expand"
    lines = []
    for turn in trajectory.turns:
        if turn.action is ActionKind.SEARCH:
            query = f"{'added' if expands else 'searched for'}: {turn.query}"
            lines.append(query if turn.query else "added nothing")
        elif turn.action is ActionKind.INVALID:
            lines.append(f"a reply that could not be read: {collapse_spaces(turn.raw_text)[:_REPLY_CHARS]}")
        elif turn.action is ActionKind.TOOL:
            problem = f": {turn.tool_error}" if turn.tool_error else ""
            lines.append(f"called {turn.tool} {turn.arguments[:_REPLY_CHARS]}{problem}")
        else:
            lines.append(f"answered: {turn.answer}")
    return "\n".join(lines) or "nothing"


def _describe_rank(rank: int | None, depth: int) -> str:
    return f"not among the first {depth}" if rank is None else f"at rank {rank}"


def _compare(score: float, question_score: float) -> str:
    if score == question_score:
        return "no better"
    return "better" if score > question_score else "worse"
