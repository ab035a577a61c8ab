import os
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drag_ray.corpus.problems import Problem, count_problems
from drag_ray.corpus.records import read_records, to_page_number
from drag_ray.errors import DataError


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


def test_a_row_of_broken_text_is_set_aside_alone(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", {"a": build_broken_text(b"x", b"\xff", b"z"), "n": [1, 2, 3]})
    records, problems = read(path)
    assert [record["n"] for record in records] == [1, 3]
    assert list(problems) == [f"{path}:2"]
    assert "UnicodeDecodeError" in problems[f"{path}:2"]


def test_a_column_that_is_not_wanted_cannot_spoil_a_row(tmp_path):
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
            "got the columns a, a, of which one stands there twice",
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


def test_a_problem_can_be_written_whatever_it_quotes():
    problem = Problem(os.fsdecode(b"w\xefng.pdf"), "got \ud800 and " + "x" * 5_000, "broken_file")
    assert problem.place == "w\\xefng.pdf"
    assert problem.reason.startswith("got \\ud800 and xxx")
    assert len(problem.reason.encode()) < 1_100


def test_problems_are_counted_by_kind():
    problems = [Problem("a", "b", kind) for kind in ("duplicate", "broken_file", "duplicate")]
    assert count_problems(problems) == {"set_aside": 3, "broken_files": 1, "duplicates": 2}
    assert count_problems([]) == {"set_aside": 0}
