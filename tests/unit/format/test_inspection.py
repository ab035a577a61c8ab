import json
import os
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from embedded_tokenizer import load_shared_tokenizer

from drag_ray.errors import DataError
from drag_ray.format.inspection import format_inspection, inspect_file, write_page


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_shared_tokenizer()


def build_row(question: str, query: str = "rotor") -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": question}],
        "completion": [{"role": "assistant", "content": f"<search>{query}</search>"}],
        "trajectory_id": question,
    }


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_tokens_and_duplicates_are_counted(tokenizer: Any, tmp_path: Path) -> None:
    rows = [build_row("a?"), build_row("b " * 60), {**build_row("a?"), "trajectory_id": "other"}]
    inspection = inspect_file(write_rows(tmp_path / "train.jsonl", rows), tokenizer, "assistant", 2, 100)
    assert (inspection.num_rows, inspection.num_duplicates, len(inspection.samples)) == (3, 1, 2)
    assert sum(count for *_, count in inspection.bins) == 3
    assert inspection.bins[0][2] == 2
    assert inspection.bins[-1][2] == 1
    learned = len(tokenizer("<search>rotor</search><|im_end|>")["input_ids"])
    assert inspection.num_learned == 3 * learned


def test_what_is_learned_is_marked_and_the_rest_is_not(tokenizer: Any, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "train.jsonl", [build_row("What?")])
    text = format_inspection(inspect_file(path, tokenizer, "search_only", 1, 100), use_color=False)
    assert ">><search>rotor</search><<<|im_end|>" in text
    assert "\033[1;32m<search>rotor</search>" in format_inspection(
        inspect_file(path, tokenizer, "assistant", 1, 9), use_color=True
    )


def test_a_text_cannot_command_the_terminal(tokenizer: Any, tmp_path: Path) -> None:
    row = {**build_row("\033]0;title\a?", "\033[2Jrotor"), "trajectory_id": "\033[31m"}
    inspection = inspect_file(write_rows(tmp_path / "train.jsonl", [row]), tokenizer, "assistant", 1, 100)
    text = format_inspection(inspection, use_color=False)
    assert "rotor" in text
    assert not {"\033", "\a"} & set(text)


def test_both_sides_of_a_pair_and_image_parts_are_shown(tokenizer: Any, tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "Page "}, {"type": "image", "text": None}]
    row = {
        "prompt": [{"role": "user", "content": parts}],
        "chosen": [{"role": "assistant", "content": [{"type": "text", "text": "yes"}]}],
        "rejected": [{"role": "assistant", "content": [{"type": "text", "text": "no"}]}],
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "train.parquet")
    inspection = inspect_file(tmp_path / "train.parquet", tokenizer, "assistant", 2, 100)
    assert [sample.label for sample in inspection.samples] == ["row 1, chosen", "row 1, rejected"]
    assert "Page <image>" in inspection.samples[0].pieces[0].text


def test_rows_that_cannot_be_learned_are_named(tokenizer: Any, tmp_path: Path) -> None:
    cut = {**build_row("a?"), "completion": [{"role": "assistant", "content": "<search>cut"}]}
    inspection = inspect_file(write_rows(tmp_path / "t.jsonl", [build_row("b?"), cut]), tokenizer, "search_only", 5, 100)
    (problem,) = inspection.problems
    assert problem.place == f"{tmp_path / 't.jsonl'}:2"
    assert problem.reason.startswith("a reply has nothing")
    assert "1 rows cannot be trained on" in format_inspection(inspection, use_color=False)


def test_a_row_that_cannot_be_read_is_named_and_the_others_are_shown(tokenizer: Any, tmp_path: Path) -> None:
    odd_text, odd_label = build_row("\ud800"), {**build_row("b?"), "trajectory_id": "\ud800"}
    rows = [build_row("a?"), odd_text, odd_label, {**build_row("c?"), "prompt": 5}]
    path = write_rows(tmp_path / os.fsdecode(b"\xff.jsonl"), rows)
    path.write_text(f"{path.read_text()}{'[' * 100_000}\n{{cut")
    inspection = inspect_file(path, tokenizer, "assistant", 5, 100)
    assert (inspection.num_rows, [sample.label for sample in inspection.samples]) == (6, ["row 1", "row 3"])
    assert [problem.place.rpartition(":")[2] for problem in inspection.problems] == ["2", "4", "5", "6"]
    format_inspection(inspection, use_color=False).encode()
    write_page(inspection, tmp_path / "page.html")


def test_the_page_is_whole_and_shows_model_text_as_text(tokenizer: Any, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "train.jsonl", [build_row("<script>alert(1)</script>")])
    write_page(inspect_file(path, tokenizer, "assistant", 1, 100), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)" in page
    marked: list[str] = []
    opened: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            opened.append(tag)

        def handle_data(self, data: str) -> None:
            if opened and opened[-1] == "mark" and "<search>" in data:
                marked.append(data)

    Reader().feed(page)
    assert marked == ["<search>rotor</search><|im_end|>"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"prompt": [', r"t\.jsonl:1: not JSON"),
        ("5\n", r"t\.jsonl:1: got int 5, expected a JSON object"),
        ("", "no rows"),
    ],
)
def test_a_file_of_something_else_is_refused_with_its_place(tokenizer: Any, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(DataError, match=message):
        inspect_file(tmp_path / "t.jsonl", tokenizer, "assistant", 1, 1)
    with pytest.raises(DataError, match="no such file"):
        inspect_file(tmp_path / "none.jsonl", tokenizer, "assistant", 1, 1)


@pytest.mark.parametrize("text", ["", "\n\n", '{"id": "q", "question": "How?"}\n', "[1]\n", '{"prompt": [], "completion": []}\n'])
def test_a_file_without_training_rows_is_refused(tokenizer: Any, tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=r"rows\.jsonl: (no rows that can be read|none of its rows can be trained on)"):
        inspect_file(path, tokenizer, "assistant", 5, 100)
