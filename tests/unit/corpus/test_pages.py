import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drag_ray import schemas
from drag_ray.corpus.readers.documents import read_pages, write_pages
from drag_ray.errors import DataError
from drag_ray.types import Page


def test_both_spellings_are_read_and_total_pages_is_filled_in(tmp_path):
    path = tmp_path / "pages.jsonl"
    path.write_text(
        '{"file": "a.pdf", "page_number": 1, "total_pages": 9, "text": "one", "service": "tesseract"}\n'
        '\n{"file": "b.pdf", "page": 4, "text": "four"}\n{"file": "b.pdf", "page": 2, "text": "two"}\n'
    )
    assert read_pages(path) == (
        [Page("a.pdf", 1, 9, "one", "tesseract"), Page("b.pdf", 4, 4, "four", "jsonl"), Page("b.pdf", 2, 4, "two", "jsonl")],
        [],
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"file": "a.pdf", "page_number": 1', "not JSON"),
        ("[1, 2]", "expected a JSON object"),
        ('{"file": 3, "page_number": 1, "text": "x"}', "column 'file': got 3 (int), expected text"),
        (
            '{"file": "a.pdf", "page_number": -1, "text": "x"}',
            "column 'page_number': got -1 (int), expected a whole number from 1",
        ),
        ('{"file": "a.pdf", "page": "two", "text": "x"}', "column 'page': got 'two' (str)"),
        ('{"file": "a.pdf", "page": true, "text": "x"}', "column 'page': got True (bool)"),
        ('{"file": "a.pdf", "page": 1, "text": ["x"]}', "column 'text': got ['x'] (list), expected text"),
        ('{"page": 1, "text": "x"}', "column 'file': got nothing, expected text"),
        ('{"file": "ok.pdf", "page": 1, "text": "again"}', "page 1 of 'ok.pdf' comes again"),
        (
            '{"file": "ok\\ud800.pdf", "page": 1, "text": "other"}',
            "column 'file': got 'ok\\ud800.pdf', expected text without",
        ),
        ('{"file": "ok\\u0000.pdf", "page": 1, "text": "other"}', "column 'file': got 'ok\\x00.pdf', expected text without"),
        ('{"file": "a.pdf", "page": "' + "7" * 5_000 + '", "text": "x"}', "Exceeds the limit (4300 digits)"),
        ('{"file": "a.pdf", "page": 1e400, "text": "x"}', "column 'page': got inf (float)"),
        ('{"file": "a.pdf", "page": 1, "text": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_line_is_set_aside_with_its_place(tmp_path, line, reason):
    path = tmp_path / "pages.jsonl"
    path.write_text('{"file": "ok.pdf", "page": 1, "text": "first"}\n' + line + "\n")
    pages, problems = read_pages(path)
    assert [page.text for page in pages] == ["first"]
    assert problems[0].place == f"{path}:2"
    assert reason in problems[0].reason


def test_a_line_of_broken_bytes_is_set_aside(tmp_path):
    path = tmp_path / "pages.jsonl"
    path.write_bytes(b'{"file": "\xff", "page": 1, "text": ""}\n{"file": "a", "page": 1, "text": "\\ud800x\\u0000"}\n')
    pages, problems = read_pages(path)
    assert ([page.text for page in pages], len(problems)) == (["x"], 1)


@pytest.mark.parametrize("damage", ["truncated", "followed by rubbish"])
def test_of_a_damaged_gzip_the_whole_lines_are_kept(tmp_path, damage):
    path = tmp_path / "pages.jsonl.gz"
    lines = "".join(json.dumps({"file": "a", "page": n, "text": f"{n * 7919}"}) + "\n" for n in range(1, 200))
    packed = gzip.compress(lines.encode())
    path.write_bytes(packed)
    assert len(read_pages(path)[0]) == 199
    path.write_bytes(packed[: len(packed) // 2] if damage == "truncated" else packed + b"rubbish")
    pages, (problem,) = read_pages(path)
    assert [page.page_number for page in pages] == list(range(1, len(pages) + 1))
    assert 50 < len(pages) < 150 if damage == "truncated" else len(pages) == 199
    assert problem.place == f"{path}:{len(pages) + 1} and what follows"
    assert problem.reason.startswith("cannot be read (")


def test_textract_pages_are_read_with_their_service(tmp_path):
    path = tmp_path / "PAGES.JSONL"
    row = {"file": "1.pdf", "service": "textract", "page_number": 2, "total_pages": 7, "text": "INVOICE\nTotal 40"}
    path.write_text(json.dumps(row) + "\n")
    assert read_pages(path) == ([Page("1.pdf", 2, 7, "INVOICE\nTotal 40", "textract")], [])


def test_pages_survive_writing_and_reading(tmp_path):
    pages = [Page("a.pdf", 1, 2, "línea\none", "pdf"), Page("a.pdf", 2, 2, "", "ocr")]
    write_pages(tmp_path / "out.jsonl", pages)
    assert read_pages(tmp_path / "out.jsonl") == (pages, [])


def test_parquet_is_read_and_a_column_of_another_type_is_named(tmp_path):
    pages = [Page("a.pdf", 1, 1, "one")]
    pq.write_table(schemas.to_table(pages, schemas.PAGES), tmp_path / "good.parquet")
    pq.write_table(pa.table({"file": ["a"], "page": [1.5], "text": ["x"]}), tmp_path / "bad.parquet")
    assert read_pages(tmp_path / "good.parquet") == (pages, [])
    found, problems = read_pages(tmp_path / "bad.parquet")
    assert found == []
    assert "column 'page': got 1.5 (float), expected a whole number from 1" in problems[0].reason


def test_a_table_that_counts_its_pages_from_zero_is_refused(tmp_path):
    path = tmp_path / "pages.jsonl"
    path.write_text('{"file": "a.pdf", "page": 1, "text": "two"}\n{"file": "a.pdf", "page": 0, "text": "one"}\n')
    with pytest.raises(DataError, match=r"page 0 in 1 records, first at .*:2\. .*Add 1 to every page number"):
        read_pages(path)


def test_the_number_of_pages_may_be_an_empty_cell(tmp_path):
    path = tmp_path / "pages.parquet"
    table = {"file": ["a.pdf"] * 2, "page": [1.0, 2.0], "total_pages": [2.0, float("nan")], "text": ["nan", None]}
    pq.write_table(pa.table(table), path)
    assert read_pages(path) == ([Page("a.pdf", 1, 2, "nan", "jsonl"), Page("a.pdf", 2, 2, "", "jsonl")], [])
