"""Rows of a file: all of them, or those of drawn questions."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from drag_ray.errors import DataError
from drag_ray.finetune.tokenized_rows import read_rows

ROWS: list[dict[str, Any]] = [{"question_id": f"q{number // 3:02}", "place": number} for number in range(90)]


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_without_a_limit_and_within_it_all_rows_are_read_in_their_order(tmp_path: Path) -> None:
    path = write_rows(tmp_path, ROWS)
    assert list(read_rows(path)) == list(read_rows(path, 90)) == list(read_rows(path, 1000, 7)) == ROWS


def test_a_limited_number_is_of_questions_from_the_whole_file_and_of_each_all_rows(tmp_path: Path) -> None:
    path = write_rows(tmp_path, ROWS)
    drawn: list[Any] = list(read_rows(path, 31, 7))
    assert len(drawn) == 31
    assert drawn == sorted(drawn, key=lambda row: row["place"])
    found = Counter(row["question_id"] for row in drawn)
    assert sorted(found.values()) == [1] + [3] * 10
    assert min(found) < "q10"
    assert max(found) >= "q20"
    assert list(read_rows(path, 31, 7)) == drawn
    assert list(read_rows(path, 31, 8)) != drawn


def test_rows_without_a_question_are_drawn_one_by_one(tmp_path: Path) -> None:
    path = write_rows(tmp_path, [{"place": number} for number in range(50)])
    assert len(list(read_rows(path, 20))) == 20


@pytest.mark.parametrize("limit", [0, 5])
def test_what_is_no_row_is_refused(tmp_path: Path, limit: int) -> None:
    with pytest.raises(DataError, match=r"no such file\. Run: python jobs/format\.py"):
        list(read_rows(tmp_path / "gone.jsonl", limit))
    (tmp_path / "train.jsonl").write_text('{"place": 1}\nnothing\n')
    with pytest.raises(DataError, match="not one JSON object a line"):
        list(read_rows(tmp_path / "train.jsonl", limit))
