"""The folder that `drag-ray learn` writes: questions in the form that the index stage reads, and what was left out.

learned/
  questions.jsonl     id, question, evidence, category: a file for corpus.questions
  left_out.jsonl      questions of which nothing was made though somebody said something, each with its reason
  counts.json         how many of each, what could not be used of the table, and the position curve
"""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from drag_ray import schemas
from drag_ray.corpus.questions import check_evidence, read_split
from drag_ray.feedback.config import LearnConfig
from drag_ray.feedback.learn import LeftOut, Lessons, learn
from drag_ray.feedback.log import read_events, require_feedback
from drag_ray.feedback.sessions import normalize
from drag_ray.storage.artifacts import read_manifest, replaced_folder, require_manifest, write_json, write_jsonl
from drag_ray.types import Question

LEARNED_DIR_NAME = "learned"
"""in the folder of a run"""
QUESTIONS_NAME = "questions.jsonl"


def write_lessons(run_dir: Path, config: LearnConfig) -> dict[str, int]:
    """Turn the feedback of a run into questions with evidence, in place of what was learned before. Returns the counts of
    `questions`, `left_out` and each reason, and of what could not be used. Raises ArtifactError where the index has not finished,
    or the disk refuses; and DataError where the run has no feedback."""
    index_dir = run_dir / "index"
    require_manifest(index_dir, "python jobs/index.py")
    lessons = learn(read_events(require_feedback(run_dir)), config)
    _set_aside(lessons, index_dir, run_dir / "questions")
    counts = _count(lessons)
    with replaced_folder(run_dir / LEARNED_DIR_NAME) as scratch:
        write_jsonl(scratch / QUESTIONS_NAME, [_to_row(question) for question in lessons.questions])
        write_jsonl(
            scratch / "left_out.jsonl", [asdict(left_out) for left_out in lessons.left_out if left_out.reason != "no_feedback"]
        )
        curve = {str(rank): chance for rank, chance in lessons.curve.estimated.items()}
        write_json(
            scratch / "counts.json", {"counts": counts, "estimated_curve": curve, "options": config.model_dump(mode="json")}
        )
    return counts


def _set_aside(lessons: Lessons, index_dir: Path, written_dir: Path) -> None:
    """Leave out test questions of the run, on which nothing may be trained, and pages that the index does not have any more."""
    tested = {
        normalize(question.question)
        for question in read_split(index_dir, "test", written_dir if read_manifest(written_dir) else None)
    }
    table = schemas.read_table(index_dir / "pages.parquet", schemas.PAGES, ["file", "page_number"])
    pages = set(zip(table["file"].to_pylist(), table["page_number"].to_pylist(), strict=True))
    present, _ = check_evidence(lessons.questions, pages)
    kept = {question.id: question for question in present}
    for question in lessons.questions:
        if normalize(question.question) in tested:
            lessons.left_out.append(LeftOut(question.question, "test_question"))
            kept.pop(question.id, None)
        elif question.id not in kept:
            lessons.left_out.append(LeftOut(question.question, "page_gone"))
    lessons.questions = list(kept.values())


def _count(lessons: Lessons) -> dict[str, int]:
    reasons = Counter(left_out.reason for left_out in lessons.left_out)
    found = {"questions": len(lessons.questions), "left_out": len(lessons.left_out)}
    return found | dict(reasons.most_common()) | {name: number for name, number in sorted(lessons.counts.items()) if number}


def _to_row(question: Question) -> dict[str, Any]:
    evidence = [{"file": page.file, "page_number": page.page_number} for page in question.evidence]
    return {"id": question.id, "question": question.question, "evidence": evidence, "category": question.category}
