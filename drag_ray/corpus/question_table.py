"""The questions of a run as the index stage left them, by their split."""

from pathlib import Path

from drag_ray import schemas
from drag_ray.corpus.questions import draw_questions
from drag_ray.errors import DataError
from drag_ray.types import Question

QUESTIONS_NAME = "questions.parquet"


def read_split(index_dir: Path, split: str) -> list[Question]:
    """The questions of a split, `train` or `test`; none if it has none.

    Raises:
        DataError: the table is missing or is not one of questions.
    """
    rows = schemas.read_table(index_dir / QUESTIONS_NAME, schemas.QUESTIONS).to_pylist()
    return [schemas.to_question(row) for row in rows if row["split"] == split]


def is_measurable(question: Question, by_answer: bool = False) -> bool:
    """True if a rollout of the question can be scored: it has an evidence page or, where answers are scored, an answer."""
    return bool(question.evidence or (by_answer and question.answers))


def draw_split(index_dir: Path, split: str, limit: int, seed: int, by_answer: bool = False) -> list[Question]:
    """The questions of a split to roll out; at most `limit` of them, drawn at random with `seed`, if it is not 0.

    Those that are not measurable can be rolled out, but there is nothing to evaluate: the test split goes without.

    Raises:
        DataError: the split has none, or as `read_split`.
    """
    questions = [question for question in read_split(index_dir, split) if split != "test" or is_measurable(question, by_answer)]
    if not questions:
        raise DataError(f"{index_dir / QUESTIONS_NAME}: no {split} question. See corpus.questions and corpus.test_fraction.")
    return draw_questions(questions, limit, seed)
