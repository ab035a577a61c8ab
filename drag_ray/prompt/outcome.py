"""The outputs of the prompt stage, for those that read them."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from drag_ray.errors import DamageError
from drag_ray.storage import artifacts

PROMPT_NAME = "prompt.json"
CANDIDATES_NAME = "candidates.jsonl"
"""A row for each proposal: what it was made from, how it did on its minibatch, and its validation score if it came to that."""
JOURNAL_NAME = "journal.jsonl"
"""What the model has answered, for a run that goes on."""
PROMPTED_NAME = "prompted"
"""What the base model with optimised instructions is called in reports."""


@dataclass(frozen=True, slots=True)
class OptimisedPrompt:
    """The best instructions that were found, which replace the first paragraph of the system prompt; the agent's own, with which
    the optimisation began, where no proposal was better.

    The scores, of both and of the questions alone, are the mean utility of the evidence's rank on the validation questions (see
    `agent.scores.compute_utility`). `accepted` proposals came to validation. Rollouts that failed count as nothing found.
    """

    instructions: Annotated[str, Field(pattern=r"\S")]
    own_instructions: str
    score: float
    own_score: float
    question_score: float
    num_validation_questions: int
    rollouts: int
    max_rollouts: int
    failed_rollouts: int
    proposals: int
    accepted: int
    model: str
    query_mode: str
    protocol: str


def write_prompt(folder: Path, prompt: OptimisedPrompt) -> None:
    """Write `prompt.json`, whole or not at all."""
    artifacts.write_json(folder / PROMPT_NAME, asdict(prompt))


def read_prompt(folder: Path) -> OptimisedPrompt:
    """The prompt that a finished stage has left.

    Raises:
        DamageError: the file is missing, or is not one of this stage.
    """
    path = folder / PROMPT_NAME
    try:
        return TypeAdapter(OptimisedPrompt).validate_json(path.read_bytes())
    except ValidationError as error:
        found = error.errors()[0]
        problem = ": ".join([*map(str, found["loc"]), found["msg"]])
    except OSError as error:
        problem = str(error.strerror)
    raise DamageError(f"{path}: not an optimised prompt ({problem}). Run: {artifacts.read_command(folder)}")
