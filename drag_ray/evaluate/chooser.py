"""The model of gain that `best_of` chooses by, fitted before any rollout to what was collected of the training questions.

The queries of the format stage's rows for `reward` are searched again, as this evaluation searches, so that features and gains
are of the same lists, and those of fused lists are known too. It is fitted to the train side and tried on the validation side; of
the test questions nothing is read.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import polars as pl

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import compute_evidence_rank
from drag_ray.agent.scores import compute_utility
from drag_ray.baselines.best_of import describe_figures
from drag_ray.baselines.candidates import LIST_FEATURES, CandidateReader
from drag_ray.baselines.gain_model import GainModel, choose_best, fit_gain_model, write_gain_model
from drag_ray.corpus.question_table import read_split
from drag_ray.corpus.questions import draw_questions
from drag_ray.errors import ArtifactError, DataError
from drag_ray.format.split import TRAIN, VALIDATION
from drag_ray.inputs import Inputs
from drag_ray.search.searcher import Searcher
from drag_ray.tasks import map_parts
from drag_ray.types import Hit, Question

_logger = logging.getLogger(__name__)

CHOOSER_DIR_NAME = "chooser"
"""The folder of the model within that of the stage."""
_ROW_FORMAT = "reward"
_CHUNK_QUESTIONS = 250


@dataclass(frozen=True)
class DescribedQuestion:
    """What could be searched for a question, with its gain over the question.

    Attributes:
        rows: the features of each search.
        gains: its utility less that of the question itself.
        are_own: whether it is one to choose among when the policy is asked: a reply of its own, or the first of them fused with
            the question's list.
    """

    rows: list[list[float]]
    gains: list[float]
    are_own: list[bool]


@dataclass(frozen=True)
class _Asked:
    """A question with the queries that were collected for it, each with whether the policy wrote it."""

    question: Question
    queries: tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class _Job:
    index_dir: Path
    agent: AgentConfig
    reward_model: Path | None


def fit_chooser(
    agent: AgentConfig, inputs: Inputs, reward_model: Path | None, max_questions: int, seed: int, folder: Path
) -> None:
    """Fit the model of gain and write it into `folder`; with a reward model it reads rewards too, if they help on validation.

    Args:
        agent: whose way to search it is.
        inputs: of the evaluate stage.
        reward_model: the folder of the run's reward model, if it has one.
        max_questions: training questions to fit to, at most.
        seed: of the draw of these.
        folder: where the model is kept.

    Raises:
        ArtifactError: the format stage was not run.
        DataError: its rows are missing, unreadable or none, or belong to no training question of the index.
    """
    format_dir = inputs.find("format")
    if format_dir is None:
        raise ArtifactError(
            "evaluate.baselines 'best_of': this run has no format stage, whose rows it learns what to choose from. "
            "Run: python jobs/format.py"
        )
    questions = {question.id: question for question in read_split(inputs["index"], "train") if question.evidence}
    job = _Job((inputs["index"] / "search_index").resolve(), agent, reward_model)
    train, validation = (
        list(_describe_all(job, _read_asked(format_dir, side, questions, max_questions, seed), folder.parent))
        for side in (TRAIN, VALIDATION)
    )
    if not any(question.rows for question in train):
        raise DataError(
            f"{format_dir / _ROW_FORMAT / TRAIN}.parquet: no query for a training question of {inputs['index']}, expected some. "
            "Take the index that was collected from, or collect and format again."
        )
    model = fit_best(train, validation, has_rewards=reward_model is not None)
    write_gain_model(folder, model)
    _logger.info(f"best_of: {describe_figures(model)}")


def fit_best(train: Sequence[DescribedQuestion], validation: Sequence[DescribedQuestion], *, has_rewards: bool) -> GainModel:
    """The model of gain, with its figures.

    One that gains nothing on the validation side is none: then every question stays as it is. A reward model has been trained on
    the train side, where it is too sure of itself; so its rewards are read only if choosing with them gains more than without.

    Args:
        train: questions to fit to, of which one has a search at least.
        validation: questions to try it on.
        has_rewards: the last feature is the reward.
    """
    names = CandidateReader.list_features(has_rewards=has_rewards)
    rows, gains = [row for each in train for row in each.rows], [gain for each in train for gain in each.gains]
    numbers = [number for number, each in enumerate(train) for _ in each.rows]
    counts = {"questions": len(train), "candidates": len(rows)}
    fitted = [GainModel(figures=counts | compute_figures(GainModel(), validation))]  # of equal ones the first is taken
    for num_features in sorted({len(LIST_FEATURES), len(names)}):
        model = fit_gain_model(names[:num_features], [row[:num_features] for row in rows], gains, numbers)
        fitted.append(replace(model, figures={**counts, **model.figures, **compute_figures(model, validation)}))
    return max(fitted, key=lambda model: model.figures["chosen_gain"])


def compute_figures(model: GainModel, questions: Sequence[DescribedQuestion]) -> dict[str, float]:
    """What choosing by a model gains: means over the questions, of what the policy itself would offer.

    Returns:
        validation_questions; chosen_gain; oracle_gain, of the best choice; first_gain, of the policy's first reply without any
        choice; and the questions on which the choice found more (wins) or less (losses) than the question itself.
    """
    chosen, best, first = [], [], []
    for question in questions:
        own = [place for place, is_own in enumerate(question.are_own) if is_own]
        gains = [question.gains[place] for place in own]
        place = choose_best(model.predict([question.rows[place][: len(model.features)] for place in own]))
        chosen.append(0.0 if place is None else gains[place])
        best.append(max([0.0, *gains]))
        first.append(gains[0] if gains else 0.0)
    num_questions = max(len(questions), 1)
    return {
        "validation_questions": len(questions),
        "chosen_gain": sum(chosen) / num_questions,
        "oracle_gain": sum(best) / num_questions,
        "first_gain": sum(first) / num_questions,
        "wins": sum(gain > 0 for gain in chosen),
        "losses": sum(gain < 0 for gain in chosen),
    }


def _read_asked(format_dir: Path, side: str, questions: dict[str, Question], max_questions: int, seed: int) -> list[_Asked]:
    """The questions of a side that have rows, at most `max_questions`, drawn with `seed`."""
    path = format_dir / _ROW_FORMAT / f"{side}.parquet"
    try:
        rows = pl.read_parquet(path, columns=["question_id", "query", "baseline"], glob=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        problem = str(error).partition("\n")[0]
        raise DataError(
            f"{path}: no readable rows of question_id, query and baseline ({problem}), which best_of is fitted to. "
            f"Run: python jobs/format.py --format.formats {_ROW_FORMAT}"
        ) from error
    queries: dict[str, dict[str, bool]] = {}
    for question_id, query, baseline in rows.iter_rows():
        queries.setdefault(question_id, {}).setdefault(query, not baseline)
    known = [questions[question_id] for question_id in queries if question_id in questions]
    drawn = draw_questions(known, max_questions, seed) if known else []
    return [_Asked(question, tuple(queries[question.id].items())) for question in drawn]


def _describe_all(job: _Job, asked: Sequence[_Asked], folder: Path) -> Iterator[DescribedQuestion]:
    return map_parts(partial(_describe_chunk, job), asked, _CHUNK_QUESTIONS, folder)


def _describe_chunk(job: _Job, asked: Sequence[_Asked]) -> list[DescribedQuestion]:
    reward_model = job.reward_model

    def load_score():
        from drag_ray.engine.reward_model import RewardModel

        assert reward_model
        return RewardModel(reward_model).score

    reader = CandidateReader(Searcher(job.index_dir), job.agent, load_score if reward_model else None)
    return [describe_question(reader, each.question, each.queries) for each in asked]


def describe_question(reader: CandidateReader, question: Question, queries: Sequence[tuple[str, bool]]) -> DescribedQuestion:
    """The searches for a question that these queries make, each alone and fused with what the question finds.

    Args:
        reader: searches and describes.
        question: with its evidence.
        queries: each with whether the policy wrote it; the one that is the question itself gains nothing and is left out.
    """
    text = question.question
    asked = reader.search_question(text)
    candidates, are_own = [], []
    for query, is_own in queries:
        if query == reader.repeat(text):
            continue
        candidate = reader.search(text, query)
        candidates += [candidate, reader.fuse(asked, candidate)]
        are_own += [is_own, is_own and not any(are_own)]
    start = _compute_utility(asked, question, reader.depth)
    gains = [_compute_utility(each.shown, question, reader.depth) - start for each in candidates]
    return DescribedQuestion(reader.compute_features(text, asked, candidates), gains, are_own)


def _compute_utility(hits: tuple[Hit, ...], question: Question, depth: int) -> float:
    return compute_utility(compute_evidence_rank(hits, question.evidence), depth)
