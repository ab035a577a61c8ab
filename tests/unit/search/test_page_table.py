"""The page table: order, rows, and collections of more than 2 GiB."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drag_ray import schemas
from drag_ray.errors import SearchIndexError
from drag_ray.search.page_table import BATCH_ROWS, PageTable, compute_order, map_texts, write_pages
from drag_ray.types import Page

PAGES = [Page(file, number, 3, f"{file} {number}") for file in ("b.pdf", "a.pdf", "ä.pdf", "c.pdf") for number in (7, 1, 3)]


def write_table(path: Path, pages: list[Page]) -> PageTable:
    source = path.with_name("pages.parquet")
    pq.write_table(schemas.to_table(pages, schemas.PAGES), source, row_group_size=1_000)
    write_pages(source, compute_order(source), path)
    return PageTable(path)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> PageTable:
    return write_table(tmp_path_factory.mktemp("pages") / "pages.arrow", PAGES)


def test_rows_are_in_order_of_file_and_page_and_found_by_name(table: PageTable) -> None:
    expected = [(file, number) for file in ("a.pdf", "b.pdf", "c.pdf", "ä.pdf") for number in (1, 3, 7)]
    assert [table.key(row) for row in range(len(table))] == expected
    for page in PAGES:
        row = table.row(page.file, page.page_number)
        assert row is not None
        assert (table.key(row), table.text(row), table.page(row)) == ((page.file, page.page_number), page.text, page)
    assert table.row_ranges(["c.pdf", "b.pdf", "b.pdf"]) == [range(3, 9)]
    assert table.row_ranges(["ä.pdf", "lost.pdf", "a.pdf"]) == [range(3), range(9, 12)]
    assert table.row_ranges([]) == table.row_ranges(["lost.pdf"]) == []


@pytest.mark.parametrize(("file", "number"), [("a.pdf", 0), ("a.pdf", 2), ("a.pdf", 8), ("", 1), ("d.pdf", 1), ("ä.pdf", 99)])
def test_a_page_that_is_not_there_has_no_row(table: PageTable, file: str, number: int) -> None:
    assert table.row(file, number) is None


@pytest.mark.parametrize("step", [1, -1, 5])
def test_pages_in_any_order_go_over_the_borders_of_batches(tmp_path: Path, step: int) -> None:
    pages = [Page("a.pdf", number, 1, f"text {number}") for number in range(2 * BATCH_ROWS + 10)]
    mixed = [pages[step * place % len(pages)] for place in range(len(pages))]
    table = write_table(tmp_path / "pages.arrow", mixed)
    for row in (0, BATCH_ROWS - 1, BATCH_ROWS, 2 * BATCH_ROWS, 2 * BATCH_ROWS + 9):
        assert table.page(row) == pages[row]
    assert map_texts(tmp_path / "pages.arrow").to_pylist() == [page.text for page in pages]
    assert [path.name for path in tmp_path.iterdir() if path.suffix not in (".arrow", ".parquet")] == []


def test_a_table_has_64_bit_offsets_and_is_the_same_whatever_the_order_of_its_source(tmp_path: Path) -> None:
    for name, pages in (("a", PAGES), ("b", sorted(PAGES, key=lambda page: (page.file, page.page_number)))):
        (tmp_path / name).mkdir()
        write_table(tmp_path / name / "pages.arrow", pages)
    assert (tmp_path / "a" / "pages.arrow").read_bytes() == (tmp_path / "b" / "pages.arrow").read_bytes()
    """32-bit offsets of a whole column end at 2 GiB of text."""
    write_table(tmp_path / "pages.arrow", PAGES)
    assert map_texts(tmp_path / "pages.arrow").type == pa.large_string()


def test_columns_beside_those_of_a_page_are_left_out(tmp_path: Path) -> None:
    pages = schemas.to_table(PAGES[:1], schemas.PAGES).add_column(0, "extra", pa.array([b"x"]))
    pq.write_table(pages, tmp_path / "pages.parquet")
    write_pages(tmp_path / "pages.parquet", np.array([0]), tmp_path / "pages.arrow")
    assert PageTable(tmp_path / "pages.arrow").page(0) == PAGES[0]


def test_a_file_that_is_cut_short_or_of_other_batches_is_refused(tmp_path: Path) -> None:
    write_table(tmp_path / "pages.arrow", PAGES)
    table = pa.ipc.open_file(str(tmp_path / "pages.arrow")).read_all()
    with pa.OSFile(str(tmp_path / "other.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    with pytest.raises(SearchIndexError, match=r"batches of 8192 rows.*Build the index again"):
        PageTable(tmp_path / "other.arrow")
    path = tmp_path / "pages.arrow"
    write_table(path, PAGES)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(SearchIndexError, match=r"Build the index again"):
        PageTable(path)


def test_a_file_is_found_by_a_name_that_looks_the_same_unless_two_do(tmp_path: Path) -> None:
    files = ["U\u0308bersicht.pdf", "a.pdf", "b\u00b2.pdf", "b^2.pdf", "folder/c.pdf"]
    table = write_table(tmp_path / "pages.arrow", [Page(file, 1, 1, file) for file in files])
    rows = {
        name: table.row(name, 1) for name in ("Übersicht.pdf", "./a.pdf", "b\u00b2.pdf", "./b^2.pdf", "folder\\c.pdf", "A.pdf")
    }
    found = {name: None if row is None else table.key(row)[0] for name, row in rows.items()}
    assert list(found.values()) == ["U\u0308bersicht.pdf", "a.pdf", "b\u00b2.pdf", None, "folder/c.pdf", None]
    assert table.row_ranges(["./a.pdf", "a.pdf", "Übersicht.pdf"]) == [range(2)]
    assert table.rows("./b^2.pdf") == range(0)
