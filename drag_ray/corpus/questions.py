"""Questions with their evidence, in the spellings of the public sets, and those of a run as its index stage left them."""

import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from drag_ray import schemas
from drag_ray.corpus.problems import Problem
from drag_ray.corpus.question_images import IMAGE_COLUMNS, QuestionImages
from drag_ray.corpus.records import (
    FILE_COLUMNS,
    PAGE_COLUMNS,
    get_field,
    list_columns,
    read_name,
    read_records,
    read_text,
    refuse_page_zero,
    to_page_number,
)
from drag_ray.corpus.text import to_encodable
from drag_ray.errors import DataError
from drag_ray.search.page_table import FileNames
from drag_ray.types import Evidence, Question

_logger = logging.getLogger(__name__)

_ID_COLUMNS = ("id", "question_id")
_EVIDENCE_COLUMNS = ("evidence", "answer_locations", "gold")
_ANSWER_COLUMNS = ("answers", "answer_variants", "answer")
_CANDIDATE_COLUMN = "candidates"
_CATEGORY_COLUMNS = ("category", "document_category", "domain")
_COLUMNS = (
    *(*_ID_COLUMNS, "question", *_EVIDENCE_COLUMNS, *FILE_COLUMNS, *PAGE_COLUMNS),
    *(*_ANSWER_COLUMNS, *_CATEGORY_COLUMNS, "group", "split", *IMAGE_COLUMNS, _CANDIDATE_COLUMN),
)
_KNOWN_COLUMNS = {*_COLUMNS, "style", "path", "plain_question"}  # these the stage `questions` writes for people
_SPLITS = {
    "": "",
    "train": "train",
    "training": "train",
    "test": "test",
    "dev": "test",
    "val": "test",
    "validation": "test",
    "eval": "test",
}
_MAX_NAMED_PAGES = _MAX_NAMED_IDS = 3
_MAX_NAMED_COLUMNS = 10


def read_questions(
    path: Path, allow_unanswerable: bool = False, images: QuestionImages | None = None
) -> tuple[list[Question], list[Problem]]:
    """Questions of a `.jsonl`, `.jsonl.gz` or `.parquet` file in their order, and what was set aside.

    Each row has `id`, `question` and its evidence pages under `evidence`, `answer_locations` (DRAG), `gold` or plainly
    as `file` and `page`; a page is `{"file" or "document", "page_number" or "page"}`, `[file, page]` or `"file:page"`.
    Answers are `answers`, or `answer_variants` (MADQA: lists of which each is one way to answer, joined by commas).
    `category` (or `document_category`, `domain`), `group` and `split` may be absent; dev, validation and eval are test.
    A question about an image may do without words.
    `candidates` (pages as above, best first) are what the task rerank orders; without them it orders what the index finds.
    A row without evidence is set aside, unless `allow_unanswerable`, and so is one whose `image` or `images` cannot be read.
    Columns of other names are left out, and said.

    Args:
        images: takes the images of the rows; None sets rows with images aside.

    Raises:
        DataError: the file is missing, of another kind, or counts its pages from 0.
    """
    questions: dict[str, Question] = {}
    problems: list[Problem] = []
    others: Counter[str] = Counter()

    def parse(record: dict[str, Any]) -> Question:
        others.update(name for name in record.keys() - _KNOWN_COLUMNS if record[name] is not None)
        return _parse_question(record, allow_unanswerable, images)

    for place, question in read_records(path, parse, _COLUMNS):
        if isinstance(question, Problem):
            problems.append(question)
            continue
        if question.id in questions:
            problems.append(Problem(place, f"id {question.id!r} comes again; the first one is kept", "duplicate"))
            continue
        questions[question.id] = question
    refuse_page_zero(path, problems)
    _say_others(path, others or Counter(set(list_columns(path)) - _KNOWN_COLUMNS))
    return list(questions.values()), problems


def _say_others(path: Path, others: Counter[str]) -> None:
    """Log the columns that are not read: one of them may be a picture under another name."""
    if others:
        named = ", ".join(f"{name!r:.60}" for name, _ in others.most_common(_MAX_NAMED_COLUMNS))
        more = f" and {len(others) - _MAX_NAMED_COLUMNS} more" if len(others) > _MAX_NAMED_COLUMNS else ""
        _logger.info(f"{path}: ignored columns: {named}{more}; rename those that should be read (docs/documents.md)")


def check_evidence(questions: Sequence[Question], pages: Collection[tuple[str, int]]) -> tuple[list[Question], list[Problem]]:
    """Questions with the evidence and the candidates that the corpus holds, and what was set aside: lost pages, and questions
    that lost all of their evidence. A file is named as the corpus names it, or so that it looks the same (see `FileNames`).

    Args:
        pages: (file, page_number) of every page of the corpus; a set or a dictionary.
    """
    kept: list[Question] = []
    problems: list[Problem] = []
    names = FileNames(file for file, _ in pages)
    for question in questions:
        evidence, candidates = (_find_pages(places, pages, names) for places in (question.evidence, question.candidates))
        if lost := [item for item, found in evidence.items() if found is None]:
            reason = _explain_loss(lost, len(evidence), names)
            problems.append(Problem(f"question {question.id}", reason, "incomplete_question"))
        if num_lost := sum(found is None for found in candidates.values()):
            reason = f"{num_lost} of {len(candidates)} candidates are not in the corpus; ordered without them"
            problems.append(Problem(f"question {question.id}", reason, "incomplete_question"))
        present, ordered = (tuple(dict.fromkeys(filter(None, found.values()))) for found in (evidence, candidates))
        if present or not question.evidence:
            kept.append(replace(question, evidence=present, candidates=ordered))
    return kept, problems


def _find_pages(
    places: Sequence[Evidence], pages: Collection[tuple[str, int]], names: FileNames
) -> dict[Evidence, Evidence | None]:
    """The pages of the corpus that places mean, named as the corpus names them; None for those that it lacks."""
    named = {place: Evidence(names.find(place.file) or place.file, place.page_number) for place in places}
    return {place: page if (page.file, page.page_number) in pages else None for place, page in named.items()}


def select_questions(questions: Sequence[Question], include_ids: str, exclude_ids: str) -> list[Question]:
    """Those whose ids one file has, and the other has not; an empty name includes all and excludes none. Raises DataError: a file
    cannot be read, an included id is none of theirs, or none is left."""
    known = {question.id for question in questions}
    included, excluded = _read_ids(include_ids) if include_ids else known, _read_ids(exclude_ids) if exclude_ids else set[str]()
    if unknown := sorted(included - known):
        raise DataError(
            f"{include_ids}: {len(unknown)} of {len(included)} ids are none of the {len(known)} training questions, as "
            f"{', '.join(unknown[:_MAX_NAMED_IDS])}. Take them out, or see corpus.questions and their split."
        )
    if exclude_ids:
        _logger.info(f"{exclude_ids}: leaves out {len(excluded & known):,} questions; {len(excluded - known):,} ids are unknown")
    if not (chosen := [question for question in questions if question.id in included - excluded]):
        named = " and ".join(name for name in (include_ids, exclude_ids) if name)
        raise DataError(f"{named}: leaves none of {len(known)} training questions. Name others there.")
    return chosen


def _read_ids(name: str) -> set[str]:
    try:
        lines = Path(name).expanduser().read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise DataError(f"{name}: expected a file with the id of a question a line ({error}). Check the path.") from None
    return {line.strip() for line in lines} - {""}


def draw_questions(questions: Sequence[Question], limit: int, seed: int) -> list[Question]:
    """At most `limit` questions, drawn by a hash of seed and id, in their order; all for a limit of 0."""
    if limit == 0 or len(questions) <= limit:
        return list(questions)
    drawn = {question.id for question in sorted(questions, key=lambda question: hash_text(question.id, seed))[:limit]}
    return [question for question in questions if question.id in drawn]


def hash_text(text: str, seed: int) -> str:
    """A value that orders texts at random, and the same way on every machine."""
    return hashlib.sha256(f"{seed}:{text}".encode("utf-8", "surrogatepass")).hexdigest()


def _explain_loss(lost: Sequence[Evidence], num_evidence: int, names: FileNames) -> str:
    pages = (f"page {item.page_number} of {item.file!r}{_guess(item.file, names)}" for item in lost[:_MAX_NAMED_PAGES])
    more = ", ..." if len(lost) > _MAX_NAMED_PAGES else ""
    num_present = num_evidence - len(lost)
    rest = f"kept with the other {num_present}" if num_present else "none is left, so the question is set aside"
    return f"{len(lost)} of {num_evidence} evidence pages are not in the corpus ({', '.join(pages)}{more}); {rest}"


def _guess(file: str, names: FileNames) -> str:
    guess = "" if names.find(file) else names.guess(file)
    return f" (did you mean {guess!r}?)" if guess else ""


def _parse_question(record: dict[str, Any], allow_unanswerable: bool, images: QuestionImages | None) -> Question:
    name, identity = get_field(record, _ID_COLUMNS)
    if isinstance(identity, int) and not isinstance(identity, bool):
        record = {**record, name: str(identity)}
    split = read_text(record, "split").strip().lower()
    if split not in _SPLITS:
        raise DataError(f"column 'split': got {split!r}, expected one of {', '.join(filter(None, _SPLITS))}, or nothing")
    return Question(
        id=read_name(record, *_ID_COLUMNS, required=True),
        question=read_text(record, "question", required=get_field(record, IMAGE_COLUMNS)[1] is None).strip(),
        evidence=_parse_evidence(record, allow_unanswerable),
        answers=_parse_answers(record),
        category=read_text(record, *_CATEGORY_COLUMNS),
        group=read_name(record, "group"),
        split=_SPLITS[split],
        images=_keep_images(record, images),
        candidates=_parse_pages([] if (listed := record.get(_CANDIDATE_COLUMN)) is None else listed, _CANDIDATE_COLUMN),
    )


def _keep_images(record: dict[str, Any], images: QuestionImages | None) -> tuple[str, ...]:
    if images is not None:
        return images.keep(record)
    name, found = get_field(record, IMAGE_COLUMNS)
    if found:
        raise DataError(f"column {name!r}: got an image, for which there is no store here")
    return ()


def _parse_evidence(record: dict[str, Any], may_be_empty: bool) -> tuple[Evidence, ...]:
    name, locations = get_field(record, _EVIDENCE_COLUMNS)
    if locations is None:
        locations = [record] if get_field(record, FILE_COLUMNS)[1] is not None else []
    evidence = _parse_pages(locations, name)
    if not evidence and not may_be_empty:
        raise DataError(
            f"column {name!r}: got no evidence page, expected at least one. Accept these with --corpus.allow-unanswerable."
        )
    return evidence


def _parse_pages(locations: Any, name: str) -> tuple[Evidence, ...]:
    """The pages of a list, each once; empty cells are none."""
    if not isinstance(locations, list):
        raise DataError(f"column {name!r}: got {locations!r:.80} ({type(locations).__name__}), expected a list of pages")
    return tuple(dict.fromkeys(parse_location(location, name) for location in locations if location is not None))


def parse_location(location: Any, name: str) -> Evidence:
    """The page of `{"file" or "document", "page_number" or "page"}`, `[file, page]` or `"file:page"`. Raises DataError: it is
    none of these; says so of column `name`."""
    if isinstance(location, str) and ":" in location:
        location = location.rsplit(":", 1)
    if isinstance(location, list) and len(location) == 2:
        location = {"file": location[0], "page": location[1]}
    if not isinstance(location, dict):
        raise DataError(f"column {name!r}: got {location!r:.80}, expected {{'file', 'page_number'}}, [file, page] or 'file:page'")
    number_name, number = get_field(location, PAGE_COLUMNS)
    return Evidence(read_name(location, *FILE_COLUMNS, required=True), to_page_number(number, f"{name}.{number_name}"))


def _parse_answers(record: dict[str, Any]) -> tuple[str, ...]:
    name, answers = get_field(record, _ANSWER_COLUMNS)
    if answers is None:
        return ()
    joined: list[str] = []
    for variant in answers if isinstance(answers, list) else [answers]:
        parts = [part for part in (variant if isinstance(variant, list) else [variant]) if part is not None]
        for part in parts:
            if not isinstance(part, str | int | float):
                raise DataError(f"column {name!r}: got {part!r:.80} ({type(part).__name__}), expected text")
        if parts:
            joined.append(to_encodable(", ".join(map(str, parts))))
    return tuple(joined)


QUESTIONS_NAME = "questions.parquet"


def find_questions_dir(index_dir: Path, written_dir: Path | None = None) -> Path:
    """The folder whose questions a run asks: that of its index or, where that has none, of those that a model has written. Raises
    DataError: the table of the index is missing or is not one of questions."""
    if not written_dir or schemas.read_table(index_dir / QUESTIONS_NAME, schemas.QUESTIONS, ["id"]).num_rows:
        return index_dir
    return written_dir


def read_run_questions(index_dir: Path, written_dir: Path | None = None) -> pa.Table:
    """The table of the questions that a run asks: see `find_questions_dir`, whose args these are. Raises DataError: the table is
    missing or is not one of questions."""
    return schemas.read_table(find_questions_dir(index_dir, written_dir) / QUESTIONS_NAME, schemas.QUESTIONS)


def read_split(index_dir: Path, split: str, written_dir: Path | None = None) -> list[Question]:
    """The questions of a split, `train` or `test`; none if it has none. Otherwise as `read_run_questions`."""
    rows = read_run_questions(index_dir, written_dir).to_pylist()
    return [schemas.to_question(row) for row in rows if row["split"] == split]


def is_measurable(question: Question, by_answer: bool = False) -> bool:
    """True if a rollout of the question can be scored: it has an evidence page or, where answers are scored, an answer."""
    return bool(question.evidence or (by_answer and question.answers))


def draw_split(
    index_dir: Path, split: str, limit: int, seed: int, by_answer: bool = False, written_dir: Path | None = None
) -> list[Question]:
    """The questions of a split to roll out; at most `limit` of them, drawn at random with `seed`, if it is not 0.

    Those that are not measurable can be rolled out, but there is nothing to evaluate: the test split goes without.

    Raises:
        DataError: the split has none, or as `read_split`.
    """
    found = read_split(index_dir, split, written_dir)
    questions = [question for question in found if split != "test" or is_measurable(question, by_answer)]
    if not questions:
        raise DataError(f"{index_dir / QUESTIONS_NAME}: no {split} question. See corpus.questions and corpus.test_fraction.")
    return draw_questions(questions, limit, seed)
