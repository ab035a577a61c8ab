"""What the prompt stage leaves in its folder, for those that read it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from drag_ray import artifacts
from drag_ray.errors import DamageError

PROMPT_NAME = "prompt.json"
CANDIDATES_NAME = "candidates.jsonl"
"""A row for each proposal: what it was made from, how it did on its minibatch, and its validation score if it came to that."""
JOURNAL_NAME = "journal.jsonl"
"""What the model has answered, for a run that goes on (see `engines`)."""
GEPA_LOG_NAME = "gepa.log"
"""What GEPA says of its own work."""
PROMPTED_NAME = "prompted"
"""What the base model with optimised instructions is called in reports."""


@dataclass(frozen=True, slots=True)
class OptimisedPrompt:
    """The best instructions that were found.

    Attributes:
        instructions: replace the first paragraph of the system prompt; the agent's own where no proposal was better.
        own_instructions: those that the optimisation began with.
        score: mean utility of the evidence's rank on the validation questions (see `agent.scores.compute_utility`).
        own_score: the same of the agent's own instructions.
        question_score: the same of the questions searched as they stand.
        num_validation_questions: what these are means over.
        rollouts: that were taken, of `max_rollouts`.
        failed_rollouts: those of them that failed, which counts as nothing found.
        proposals: instructions that the model has written and that were tried; those on equal terms with others included.
        accepted: proposals that came to validation.
        model: that wrote and proposed.
        query_mode: of the agent.
        protocol: of the agent.
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


_PROMPTS = TypeAdapter(OptimisedPrompt)


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
        prompt = _PROMPTS.validate_json(path.read_bytes())
    except ValidationError as error:
        found = error.errors()[0]
        problem = ": ".join([*map(str, found["loc"]), found["msg"]])
    except OSError as error:
        problem = str(error.strerror)
    else:
        return prompt
    raise DamageError(f"{path}: not an optimised prompt ({problem}). Run: {artifacts.read_command(folder)}")
