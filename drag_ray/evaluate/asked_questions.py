"""The questions that an evaluation asks: of the test split, or those that training was validated on."""

from functools import partial
from pathlib import Path

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.tasks import ANSWERING
from drag_ray.corpus.questions import draw_questions, draw_split, is_measurable, read_split
from drag_ray.corpus.verdicts import keep_reviewed
from drag_ray.errors import ArtifactError, ConfigError, DataError
from drag_ray.evaluate.config import TEST, EvaluateConfig, EvaluateSections
from drag_ray.format.split import SIDES_NAME, VALIDATION, read_side
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage.artifacts import read_manifest
from drag_ray.types import Question

_NUM_BEFORE_TRAINING = 500
"""Questions of the train split that weights are found on while nothing is trained; each costs a reply of every policy."""


def draw_held_out(settings: EvaluateConfig, inputs: Inputs, seed: int, task: str) -> list[Question]:
    """The questions of `settings.split` that have evidence, or an answer where the task is scored by it; at most
    `settings.limit` of them, drawn with `seed`, if it is not 0.

    Validation questions are those of the train split that the format stage put on its validation side; with verdicts, test
    questions are those that a person has kept.

    Raises what `draw_validation` and `draw_split` do.
    """
    by_answer = task in ANSWERING
    if settings.split != TEST:
        return draw_questions(draw_validation(inputs, by_answer), settings.limit, seed)
    draw = partial(draw_split, inputs["index"], TEST, seed=seed, by_answer=by_answer, written_dir=inputs.find("questions"))
    if not settings.verdicts:
        return draw(limit=settings.limit)
    return draw_questions(keep_reviewed(draw(limit=0), Path(settings.verdicts).expanduser()), settings.limit, seed)


def check_weighable(settings: EvaluateConfig, agent: AgentConfig) -> bool:
    """True if weights of the question are to be found. Raises ConfigError: they would mean nothing, or would be found on the
    questions that are evaluated."""
    if not settings.question_weights:
        return False
    if not agent.expands or agent.max_iterations > 1:
        raise ConfigError(
            "evaluate.question_weights: a reply must not depend on the weight of the question, which holds for "
            f"agent.query_mode 'expand' with agent.max_iterations 1, got {agent.query_mode!r} with {agent.max_iterations}. "
            "Set both, or leave evaluate.question_weights empty."
        )
    if settings.split != TEST:
        raise ConfigError(
            "evaluate.question_weights: found on validation questions, so those cannot be what is evaluated. "
            "Set evaluate.split to 'test', or leave evaluate.question_weights empty."
        )
    return True


def draw_weighed(sections: EvaluateSections, inputs: Inputs) -> list[Question]:
    """The questions that weights of the question are found on: those on the validation side, of which nothing was trained.

    While nothing is trained all questions of the train split are such, and no format stage has to have divided them: then some of
    them are drawn. So a weight can be found before rollouts are collected with it.

    Raises what `check_weighable` and `draw_validation` do.
    """
    settings = sections.evaluate
    if not check_weighable(settings, sections.agent):
        return []
    adapters = [sections.engine.adapter, *settings.adapters, *(model.adapter for model in settings.models.values())]
    if any(adapters) or any(inputs.find(stage) for stage in ("format", "finetune")):
        return draw_validation(inputs)
    questions = _read_train(inputs)
    if not questions:
        raise DataError(
            f"{inputs['index']}: no train question with evidence to find the weight of the question on, expected at least one. "
            "Leave evaluate.question_weights empty."
        )
    return draw_questions(questions, _NUM_BEFORE_TRAINING, sections.seed)


def draw_validation(inputs: Inputs, by_answer: bool = False) -> list[Question]:
    """All questions of the train split that the format stage put on its validation side.

    Raises:
        ArtifactError: the format stage was not run, so nothing is known of validation questions.
        ConfigError: the finetune stage was trained on the rows of another format stage.
        DataError: there is no such question, or a table cannot be read.
    """
    index_dir, format_dir = inputs["index"], inputs.find("format")
    if format_dir is None:
        raise ArtifactError(
            "evaluate: this run has no format stage, which puts questions on the validation side. Run: python jobs/format.py, "
            "name the one of a scope (--reads format=reranker/format), or ask test questions without evaluate.question_weights."
        )
    _refuse_other_rows(inputs.find("finetune"), format_dir)
    ids = read_side(format_dir, VALIDATION)
    questions = [question for question in _read_train(inputs, by_answer) if question.id in ids]
    if not questions:
        raise DataError(
            f"{format_dir / SIDES_NAME}: of its {len(ids)} validation questions none is a train question with evidence in "
            f"{index_dir}, expected at least one. See format.validation_fraction, and take the index that was collected from."
        )
    return questions


def _read_train(inputs: Inputs, by_answer: bool = False) -> list[Question]:
    """The train questions that something can be measured on."""
    train = read_split(inputs["index"], "train", inputs.find("questions"))
    return [question for question in train if is_measurable(question, by_answer)]


def _refuse_other_rows(finetune_dir: Path | None, format_dir: Path) -> None:
    """Refuse rows of another format stage: what is on the validation side of one format stage may be trained on from another."""
    trained, asked = (read_manifest(folder) if folder else None for folder in (finetune_dir, format_dir))
    if not trained or not asked:
        return
    address, rows = (trained.origin.get(key, {}).get("format") for key in ("reads", "inputs"))
    if rows not in (None, asked.outcome_fingerprint):
        raise ConfigError(
            f"evaluate.split 'validation': {finetune_dir} was trained on the rows of {address}, got the validation questions of "
            f"{format_dir}, expected those of the same rows. Set --reads format=ADDRESS, or train again."
        )
