"""What became of each proposal, as GEPA reports it while it works."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from drag_ray.prompt.adapter import COMPONENT

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Instructions that were tried. Candidate 0 is the agent's own; others have one if they came to validation.

    `minibatch_score` and `parent_minibatch_score` are sums over the same questions, `validation_score` is a mean; each is None
    where nothing was measured.
    """

    iteration: int
    instructions: str
    candidate: int | None = None
    parent: int | None = None
    parent_minibatch_score: float | None = None
    minibatch_score: float | None = None
    validation_score: float | None = None


class CandidateLog:
    """A callback of GEPA that keeps a row for each proposal and says what became of it.

    Attributes:
        rows: the agent's own instructions, then the proposals in their order.
    """

    def __init__(self) -> None:
        self.rows: list[Candidate] = []
        self._parent: int | None = None
        self._parent_score = 0.0

    @property
    def num_proposals(self) -> int:
        """Instructions that the model has written."""
        return len(self.rows) - 1

    @property
    def num_accepted(self) -> int:
        """Proposals that came to validation."""
        return sum(row.candidate is not None for row in self.rows[1:])

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows as JSON-serialisable data."""
        return [asdict(row) for row in self.rows]

    def on_candidate_selected(self, event: Mapping[str, Any]) -> None:
        """Whose instructions are to be improved."""
        self._parent = event["candidate_idx"]

    def on_proposal_end(self, event: Mapping[str, Any]) -> None:
        """The model has written other instructions."""
        self.rows.append(Candidate(event["iteration"], event["new_instructions"][COMPONENT], parent=self._parent))

    def on_evaluation_end(self, event: Mapping[str, Any]) -> None:
        """A minibatch was rolled out, first with the parent's instructions and then with the proposal's."""
        score = sum(event["scores"])
        if event["candidate_idx"] is None:
            self._change_last(minibatch_score=score, parent_minibatch_score=self._parent_score)
        else:
            self._parent_score = score

    def on_candidate_rejected(self, event: Mapping[str, Any]) -> None:
        """The proposal was no better than its parent on their minibatch."""
        self._say()

    def on_valset_evaluated(self, event: Mapping[str, Any]) -> None:
        """The agent's own instructions, or a proposal that was better than its parent, were validated."""
        if event["candidate_idx"] == 0:
            self.rows.append(Candidate(0, event["candidate"][COMPONENT], candidate=0, validation_score=event["average_score"]))
        else:
            self._change_last(candidate=event["candidate_idx"], validation_score=event["average_score"])
        self._say()

    def _change_last(self, **values: Any) -> None:
        self.rows[-1] = replace(self.rows[-1], **values)

    def _say(self) -> None:
        row = self.rows[-1]
        validated = "" if row.validation_score is None else f"validation score {row.validation_score:.3f}"
        if row.minibatch_score is None:
            _logger.info(f"prompt: own instructions: {validated}")
            return
        tried = f"minibatch score {row.parent_minibatch_score:.3f} -> {row.minibatch_score:.3f}"
        _logger.info(f"prompt: proposal {self.num_proposals}: {tried}, {validated or 'rejected'}")
