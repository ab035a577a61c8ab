"""Whatever stands in a field of whatever record, it is taken or set aside, and what is taken can be written and read again."""

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from odd_records import draw_lines

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.corpus.problems import Problem
from drag_ray.corpus.questions import read_questions
from drag_ray.corpus.readers.documents import read_pages
from drag_ray.corpus.split import assign_splits
from drag_ray.errors import DataError
from drag_ray.process.interchange.drag import read_trajectories
from drag_ray.storage import artifacts
from drag_ray.types import Page, Question, Trajectory

pytestmark = pytest.mark.seconds

PAGE = {"file": "a.pdf", "page_number": 1, "page": 1, "total_pages": 3, "text": "x", "service": "ocr", "other": 1}
QUESTION = {
    "id": "q",
    "question": "How?",
    "evidence": [{"file": "a.pdf", "page_number": 1}, ["b.pdf", 2], "c.pdf:3"],
    "answers": ["so", ["or", "so"]],
    "category": "c",
    "group": "g",
    "split": "dev",
}
TRAJECTORY = {
    "id": "t",
    "question_id": "q",
    "question": "How?",
    "ground_truth": {"answers": ["so"], "answer_locations": [{"document": "a.pdf", "page": 1}, "b.pdf:2"], "category": "c"},
    "iterations": [
        {"action": "search", "reasoning": "r", "query": "rotor", "results": [{"file": "a.pdf", "page_number": 1, "rank": 1}]},
        {"action": "provide_answer", "answer": ["so"], "citations": [{"file": "a.pdf", "page": 1}]},
    ],
    "sampling_config": {"name": "high_temp"},
    "hinted": False,
    "model": "m",
    "timestamp": "2026",
    "error": None,
}


def read_imported(path: Path) -> tuple[list[Trajectory], list[Problem]]:
    found = list(read_trajectories(path, AgentConfig(query_mode="rewrite")))
    return [item for item in found if isinstance(item, Trajectory)], [item for item in found if isinstance(item, Problem)]


def read_asked(path: Path) -> tuple[list[Question], list[Problem]]:
    questions, problems = read_questions(path, allow_unanswerable=True)
    return assign_splits(questions, 0.5, 0), problems


@pytest.mark.parametrize(
    ("record", "read", "schema", "to_record"),
    [
        (PAGE, read_pages, schemas.PAGES, partial(schemas.from_row, Page)),
        (QUESTION, read_asked, schemas.QUESTIONS, schemas.to_question),
        (TRAJECTORY, read_imported, schemas.TRAJECTORIES, schemas.to_trajectory),
    ],
    ids=["pages", "questions", "trajectories"],
)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_line_is_taken_or_set_aside_and_both_can_be_written(
    record: Any,
    read: Callable[[Path], tuple[list[Any], list[Problem]]],
    schema: pa.Schema,
    to_record: Callable[[dict[str, Any]], Any],
    tmp_path: Path,
    data: st.DataObject,
) -> None:
    lines = data.draw(draw_lines(record))
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    try:
        found = read(path)
    except DataError as refusal:
        found = str(refusal)
    if isinstance(found, str):  # one page 0 is a reason to refuse the whole file
        assert "got a page 0" in found
        return
    taken, problems = found
    assert len(taken) + len(problems) == len(lines)
    artifacts.write_jsonl(tmp_path / "problems.jsonl", [asdict(problem) for problem in problems])
    written = (tmp_path / "problems.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    assert [Problem(**json.loads(line)) for line in written] == problems
    artifacts.write_parquet(tmp_path / "table.parquet", schemas.to_table(taken, schema))
    rows = schemas.read_table(tmp_path / "table.parquet", schema).to_pylist()
    assert [to_record(row) for row in rows] == taken
