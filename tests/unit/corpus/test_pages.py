"""Tables of pages, and the files of records that they come in."""

import gzip
import json
import os
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drag_ray import schemas
from drag_ray.corpus.problems import Problem, count_problems
from drag_ray.corpus.readers.documents import read_pages
from drag_ray.corpus.records import read_records, to_page_number
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
        ('{"file": "a.pdf", "page": "two", "text": "x"}', "column 'page': got 'two' (str)"),
        ('{"file": "a.pdf", "page": 1, "text": ["x"]}', "column 'text': got ['x'] (list), expected text"),
        ('{"page": 1, "text": "x"}', "column 'file': got nothing, expected text"),
        ('{"file": "ok.pdf", "page": 1, "text": "again"}', "page 1 of 'ok.pdf' comes again"),
        (
            '{"file": "ok\\ud800.pdf", "page": 1, "text": "other"}',
            "column 'file': got 'ok\\ud800.pdf', expected text without",
        ),
        ('{"file": "ok\\u0000.pdf", "page": 1, "text": "other"}', "column 'file': got 'ok\\x00.pdf', expected text without"),
    ],
)
def test_a_bad_line_is_set_aside_with_its_place(tmp_path, line, reason):
    path = tmp_path / "pages.jsonl"
    path.write_text('{"file": "ok.pdf", "page": 1, "text": "first"}\n' + line + "\n")
    pages, problems = read_pages(path)
    assert [page.text for page in pages] == ["first"]
    assert problems[0].place == f"{path}:2"
    assert reason in problems[0].reason


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


def test_broken_lines_are_set_aside(tmp_path):
    path = tmp_path / "pages.jsonl"
    path.write_bytes(b'{"file": "\xff", "page": 1, "text": ""}\n{"file": "a", "page": 1, "text": "\\ud800x\\u0000"}\n')
    pages, problems = read_pages(path)
    assert ([page.text for page in pages], len(problems)) == (["x"], 1)
    path = tmp_path / "pages.parquet"
    table = {"file": ["a.pdf"] * 2, "page": [1.0, 2.0], "total_pages": [2.0, float("nan")], "text": ["nan", None]}
    pq.write_table(pa.table(table), path)
    assert read_pages(path) == ([Page("a.pdf", 1, 2, "nan", "jsonl"), Page("a.pdf", 2, 2, "", "jsonl")], [])


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


def read(path, columns=()):
    """The records that were read and, by place, why others were not."""
    found = list(read_records(path, dict, columns))
    problems = {problem.place: problem.reason for _, problem in found if isinstance(problem, Problem)}
    return [record for _, record in found if not isinstance(record, Problem)], problems


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "not JSON (nested too deeply"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not JSON (nested too deeply"),
        (b'{"a": ' + b"5" * 5_000 + b"}", "not JSON (Exceeds the limit"),
        (b'{"a": "\xff"}', "not JSON ('utf-8' codec can't decode"),
        (b'{"a": "\0"}', "not JSON (Invalid control character"),
        (b"\0" * 100, "not JSON"),
        ('{"a": 1}'.encode("utf-16"), "not JSON"),
    ],
    ids=["deep list", "deep field", "5,000 digits", "not UTF-8", "NUL", "only NULs", "UTF-16"],
)
def test_a_line_that_cannot_be_read_is_set_aside_alone(tmp_path, line, reason):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n' + line + b'\n{"a": 2}')
    records, problems = read(path)
    assert records == [{"a": 1}, {"a": 2}]
    assert list(problems) == [f"{path}:2"]
    assert reason in problems[f"{path}:2"]


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(DataError, match=r"a\.jsonl: no such file, or no regular one"):
        read(tmp_path / "a.jsonl")


def write_parquet(path, columns, **options):
    pq.write_table(pa.table(columns), path, **options)
    return path


def build_broken_text(*texts):
    """A column of text whose bytes are taken as they are, UTF-8 or not."""
    return pa.array(texts, pa.binary()).view(pa.string())


def test_a_row_of_broken_text_or_an_unwanted_column_spoils_no_other(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", {"a": build_broken_text(b"x", b"\xff", b"z"), "n": [1, 2, 3]})
    records, problems = read(path)
    assert [record["n"] for record in records] == [1, 3]
    assert list(problems) == [f"{path}:2"]
    assert "UnicodeDecodeError" in problems[f"{path}:2"]
    times = pa.array([0, 2**62], pa.timestamp("us"))
    path = write_parquet(tmp_path / "a.parquet", {"a": ["x", "y"], "time": times})
    assert read(path, ("a", "b")) == ([{"a": "x"}, {"a": "y"}], {})
    assert list(read(path)[1]) == [f"{path}:2"]


def test_of_a_row_group_that_is_damaged_the_rows_are_set_aside_and_the_others_are_read(tmp_path):
    columns = {"a": list(range(30))}
    path = write_parquet(tmp_path / "a.parquet", columns, row_group_size=10, compression="zstd", use_dictionary=False)
    start = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + 40] = b"\xff" * 40
    path.write_bytes(data)
    records, problems = read(path)
    assert [record["a"] for record in records] == [*range(10), *range(20, 30)]
    assert list(problems) == [f"{path}:11-20"]


def encrypt(path):
    """The file with the head and the foot of one whose footer is encrypted."""
    path.write_bytes(b"PARE" + path.read_bytes()[4:-4] + b"PARE")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.write_bytes(b"PAR1 no"), "cannot be read \\(ArrowInvalid"),
        (lambda path: path.write_bytes(path.read_bytes()[:-20]), "cannot be read \\(ArrowInvalid"),
        (encrypt, "cannot be read \\(OSError"),
        (lambda path: write_parquet(path, {}), "got the columns \\(none\\), expected some of a, b"),
        (lambda path: write_parquet(path, {"c": [1]}), "got the columns c, expected some of a, b"),
        (
            lambda path: pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), path),
            "got the columns a, a, one of them twice",
        ),
    ],
    ids=["no Parquet", "truncated", "encrypted", "no columns", "other columns", "twice"],
)
def test_a_parquet_file_that_cannot_be_read_is_one_problem(tmp_path, damage, reason):
    path = write_parquet(tmp_path / "a.parquet", {"a": [1, 2]})
    damage(path)
    records, problems = read(path, ("a", "b"))
    assert (records, list(problems)) == ([], [str(path)])
    assert re.match(reason, problems[str(path)])


@pytest.mark.parametrize("value", [7, "7", 7.0, " 7 "])
def test_page_numbers_in_every_spelling(value):
    assert to_page_number(value) == 7


@pytest.mark.parametrize("value", [0, -5, "-5", True, 2**31, 2**40, 1.5, float("inf"), float("nan"), "²", "", None, [7]])
def test_what_is_no_page_number_is_refused(value):
    with pytest.raises(DataError, match="expected a whole number from 1"):
        to_page_number(value)


def test_a_problem_can_be_written_whatever_it_quotes_and_problems_are_counted_by_kind():
    problem = Problem(os.fsdecode(b"w\xefng.pdf"), "got \ud800 and " + "x" * 5_000, "broken_file")
    assert problem.place == "w\\xefng.pdf"
    assert problem.reason.startswith("got \\ud800 and xxx")
    assert len(problem.reason.encode()) < 1_100
    problems = [Problem("a", "b", kind) for kind in ("duplicate", "broken_file", "duplicate")]
    assert count_problems(problems) == {"set_aside": 3, "broken_files": 1, "duplicates": 2}
    assert count_problems([]) == {"set_aside": 0}
