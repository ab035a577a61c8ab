"""The user's table of what is said of documents: its types, and what of it is refused, or set aside with its place."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.document_metadata import read_document_metadata
from drag_ray.corpus.problems import count_problems
from drag_ray.errors import ArtifactError, DataError
from drag_ray.search.config import ColumnType

FILES = ["a.pdf", "b/b.pdf", "c.pdf"]
CSV = """file,department,pages,date,ok,tags
c.pdf,"law, tax",3,2024-02-01,true,x;y
./b\\b.pdf,,4.5,2024-03-01T12:00:00+02:00,FALSE, z
"""


def write(path: Path, content: str | list[dict[str, Any]]) -> Path:
    text = content if isinstance(content, str) else "".join(json.dumps(row) + "\n" for row in content)
    path.write_text(text, encoding="utf-8")
    return path


def read_cells(metadata: Any, name: str) -> list[Any]:
    return metadata._table[name].to_list()


def test_a_csv_file_has_columns_of_what_its_cells_look_like_and_the_types_that_are_said(tmp_path: Path) -> None:
    metadata, problems = read_document_metadata(write(tmp_path / "m.csv", "\ufeff" + CSV), FILES, {"tags": "list"})
    assert metadata.columns == {"department": "text", "pages": "number", "date": "date", "ok": "boolean", "tags": "list"}
    assert metadata.files == FILES
    assert read_cells(metadata, "department") == [None, None, "law, tax"]
    assert read_cells(metadata, "pages") == [None, 4.5, 3.0]
    assert read_cells(metadata, "date") == [None, datetime(2024, 3, 1, 10), datetime(2024, 2, 1)]
    assert read_cells(metadata, "ok") == [None, False, True]
    assert read_cells(metadata, "tags") == [None, ["z"], ["x", "y"]]
    assert [(problem.kind, problem.place) for problem in problems] == [("undescribed_document", "a.pdf")]
    assert count_problems(problems) == {"set_aside": 0, "undescribed_documents": 1}


def test_json_lines_and_parquet_have_types_of_their_own(tmp_path: Path) -> None:
    rows = [
        {"file": "a.pdf", "code": "0012", "size": 3, "day": "2024-02-01", "ok": True, "tags": ["x", "x", "y"]},
        {"file": "b/b.pdf", "code": "", "size": float("nan"), "day": None, "tags": []},
        {"file": "c.pdf", "size": 2.5},
    ]
    metadata, problems = read_document_metadata(write(tmp_path / "m.jsonl", rows), FILES, {})
    assert metadata.columns == {"code": "text", "size": "number", "day": "date", "ok": "boolean", "tags": "list"}
    assert read_cells(metadata, "code") == ["0012", None, None]
    assert read_cells(metadata, "size") == [3.0, None, 2.5]
    assert read_cells(metadata, "tags") == [["x", "y"], [], None]
    assert problems == []
    table = pa.table(
        {
            "file": FILES,
            "day": [date(2024, 2, 1), None, date(2025, 1, 1)],
            "at": [datetime(2024, 2, 1, 12, tzinfo=UTC)] * 3,
            "cost": [Decimal("1.50"), None, Decimal("2.00")],
            "kind": pa.array(["x", "y", "x"]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "m.parquet")
    metadata, _ = read_document_metadata(tmp_path / "m.parquet", FILES, {})
    assert metadata.columns == {"day": "date", "at": "date", "cost": "number", "kind": "text"}
    assert read_cells(metadata, "at")[0] == datetime(2024, 2, 1, 12)


def test_rows_of_other_documents_broken_rows_and_cells_of_other_types_are_set_aside_with_their_places(tmp_path: Path) -> None:
    text = "file,date\na.pdf,1\nz.pdf,2024-01-01\n,2024-01-01\nb.pdf,2024-01-01\nc.pdf,1\n"
    path = write(tmp_path / "m.csv", text)
    metadata, problems = read_document_metadata(path, FILES, {"date": "date"})
    assert read_cells(metadata, "date") == [None, None, None]
    found = {(problem.kind, problem.place.removeprefix(f"{path}:")) for problem in problems}
    assert found == {
        ("broken_record", "4"),
        ("unknown_document", "3"),
        ("unknown_document", "5"),
        ("broken_value", "2"),
        ("broken_value", "6"),
        ("undescribed_document", "b/b.pdf"),
    }
    assert any("'b/b.pdf' may be meant" in problem.reason for problem in problems)
    assert count_problems(problems)["set_aside"] == 5


@pytest.mark.parametrize(
    ("rows", "types", "problem"),
    [
        ([{"file": "a.pdf"}, {"file": "./a.pdf"}], {}, r"m\.jsonl:2 and .*m\.jsonl:1 are both of 'a\.pdf'"),
        ([{"file": "a.pdf", "x": 1}, {"file": "c.pdf", "x": "1"}], {}, r"'x' holds a number .*jsonl:1\) and a text"),
        ([{"file": "a.pdf", "x": {"y": 1}}], {}, r"'x': got a dict, expected one of text, number"),
        ([{"file": "a.pdf", "x": 1}], {"y": "text"}, r"corpus\.metadata_types: .* has no column 'y', only x"),
        (
            [{"file": file, "day": day} for file, day in zip(FILES, ("2024-01-01", "2024-13-01", "2024-02-01"), strict=True)],
            {},
            r"jsonl:2, 'day': '2024-13-01' is no date, as other cells .*day=date.*day=text",
        ),
    ],
)
def test_a_table_that_can_be_read_in_several_ways_is_refused_with_the_place(
    tmp_path: Path, rows: list[dict[str, Any]], types: dict[str, ColumnType], problem: str
) -> None:
    with pytest.raises(DataError, match=problem):
        read_document_metadata(write(tmp_path / "m.jsonl", rows), FILES, types)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no column 'file' with the documents, only name, x"):
        read_document_metadata(write(tmp_path / "m.csv", "name,x\na.pdf,1\n"), FILES, {})
    with pytest.raises(DataError, match="no such file"):
        read_document_metadata(tmp_path / "none.csv", FILES, {})
    with pytest.raises(DataError, match="unsupported kind of file"):
        read_document_metadata(write(tmp_path / "m.xlsx", "file"), FILES, {})
    (tmp_path / "bytes.csv").write_bytes(b"file,x\na.pdf,\xff\xfe\n")
    with pytest.raises(ArtifactError, match=r"bytes\.csv"):
        read_document_metadata(tmp_path / "bytes.csv", FILES, {})
    with pytest.raises(ArtifactError, match=r"ragged\.csv"):
        read_document_metadata(write(tmp_path / "ragged.csv", "file,x\na.pdf,1,2,3\n"), FILES, {})


@pytest.mark.parametrize("name", ["*", "^x.*$"])
def test_a_column_whose_name_polars_takes_for_a_pattern_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="pattern of columns"):
        read_document_metadata(write(tmp_path / "m.jsonl", [{"file": "a.pdf", name: 1}]), FILES, {})


def test_names_of_columns_are_told_apart_and_read_as_cells_are(tmp_path: Path) -> None:
    path = write(tmp_path / "m.CSV", " file , ok\r\na.pdf, true\r\n")
    assert read_document_metadata(path, FILES, {})[0].columns == {"ok": "boolean"}
    for header, name in (
        ("file,group,group", "'group'"),
        ("file,file,x", "'file'"),
        ("file,group, group ", "'group'"),
        ("file,,x", "''"),
    ):
        with pytest.raises(DataError, match=f"each its own; got {name}. Rename"):
            read_document_metadata(write(tmp_path / "m.csv", f"{header}\na.pdf,sales,law\n"), FILES, {}, "group")


def test_halves_of_surrogate_pairs_are_set_aside(tmp_path: Path) -> None:
    rows = [{"file": "a.pdf", "x": "\ud800", "y": ["\ud800"], "z": "z"}, {"file": "c.pdf", "\ud800": 1}]
    metadata, problems = read_document_metadata(write(tmp_path / "m.jsonl", rows), FILES, {})
    assert [read_cells(metadata, name)[0] for name in "xyz"] == [None, None, "z"]
    assert [problem.kind for problem in problems if problem.kind != "undescribed_document"] == [
        "broken_record",
        *2 * ["broken_value"],
    ]


def test_groups_are_texts_whatever_they_look_like_and_none_stands_for_all(tmp_path: Path) -> None:
    path = write(tmp_path / "m.csv", "file,group\na.pdf,1\nc.pdf,2\n")
    metadata, _ = read_document_metadata(path, FILES, {}, "group")
    assert (metadata.columns, metadata.access_column) == ({"group": "text"}, "group")
    assert metadata.select_groups(["1"]).tolist() == [True, False, False]
    listed = write(tmp_path / "m.jsonl", [{"file": "a.pdf", "group": ["1", "2"]}, {"file": "c.pdf", "group": []}])
    metadata, _ = read_document_metadata(listed, FILES, {}, "group")
    assert metadata.select_groups(["2", "3"]).tolist() == [True, False, False]
    for group in ("*", ["a", "*"]):
        with pytest.raises(DataError, match="stands for all"):
            read_document_metadata(write(tmp_path / "m.jsonl", [{"file": "a.pdf", "group": group}]), FILES, {}, "group")
    with pytest.raises(DataError, match=r"corpus\.access_column: .* has no column 'team', only group"):
        read_document_metadata(path, FILES, {}, "team")


def test_a_table_of_no_row_describes_nothing(tmp_path: Path) -> None:
    metadata, problems = read_document_metadata(write(tmp_path / "m.csv", "file,x\n"), FILES, {})
    assert len(problems) == len(FILES)
    assert isinstance(metadata._table, pl.DataFrame)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"access_column": "group"}, r"no such table is named"),
        ({"metadata": "m.csv", "metadata_types": ["day:date"]}, r"'day:date' is not name=type, with one of text, number"),
        ({"metadata": "m.csv", "metadata_types": ["day=time"]}, r"is not name=type"),
        ({"metadata": "m.csv", "metadata_types": ["group=number"], "access_column": "group"}, r"names of groups"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        CorpusConfig(**options)
