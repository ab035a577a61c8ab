"""What an optimisation asks of the base model, and how the answers are kept, so that a run that was killed goes on.

An optimisation follows from its seed and from what it is answered. So one that goes on begins anew and is given the answers of
the journal as long as there are any, at no cost: it comes to where it was, and to the same end as if it had not been killed.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import TypeAdapter

from drag_ray.appended_lines import append_line, read_lines
from drag_ray.artifacts import compute_fingerprint
from drag_ray.prompt.feedback import Outcome
from drag_ray.types import Question


class PromptEngine(Protocol):
    """The base model, for an optimisation."""

    def roll_out(self, instructions: str, questions: Sequence[Question]) -> list[Outcome]:
        """Ask all these questions at once with these instructions, greedily; an outcome for each, in their order.

        Raises:
            EngineDiedError: the model answers no more.
        """
        ...

    def write(self, request: str, number: int) -> str | None:
        """Draw the reply to a request, without its reasoning; None if it ends within that.

        Args:
            number: of the request, which its seed is made from.

        Raises:
            PromptTooLongError: request and reply do not fit into the model's context.
            EngineDiedError: as above.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Line:
    key: str
    answer: list[Outcome] | str | None


_LINE = TypeAdapter(_Line)


class JournaledEngine:
    """An engine whose answers are kept in a file, and given again to who asks the same in the same order.

    Args:
        engine: answers what the journal cannot.
        path: the journal, with one JSON object a line. A line that was cut short is taken off.
    """

    def __init__(self, engine: PromptEngine, path: Path) -> None:
        self._engine = engine
        self._path = path
        self._kept: dict[str, deque[Any]] = defaultdict(deque)
        for line in read_lines(path, _LINE):
            self._kept[line.key].append(line.answer)
        self.num_replayed = 0

    def roll_out(self, instructions: str, questions: Sequence[Question]) -> list[Outcome]:
        """As `PromptEngine.roll_out`."""
        key = compute_fingerprint("rollouts", instructions, [question.id for question in questions])
        if self._kept[key]:
            self.num_replayed += len(questions)
            return self._kept[key].popleft()
        outcomes = self._engine.roll_out(instructions, questions)
        if not any(outcome.error for outcome in outcomes):  # who goes on tries again what has failed
            self._keep(key, [asdict(outcome) for outcome in outcomes])
        return outcomes

    def write(self, request: str, number: int) -> str | None:
        """As `PromptEngine.write`."""
        key = compute_fingerprint("reply", request, number)
        if self._kept[key]:
            return self._kept[key].popleft()
        reply = self._engine.write(request, number)
        self._keep(key, reply)
        return reply

    def _keep(self, key: str, answer: Any) -> None:
        append_line(self._path, {"key": key, "answer": answer})
