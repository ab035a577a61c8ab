"""The page table: order, rows, and collections of more than 2 GiB."""

from pathlib import Path

import pyarrow as pa
import pytest

from drag_ray import schemas
from drag_ray.errors import SearchIndexError
from drag_ray.search.page_table import BATCH_ROWS, PageTable, cut_batches, sort_pages, write_pages
from drag_ray.types import Page

PAGES = [Page(file, number, 3, f"{file} {number}") for file in ("b.pdf", "a.pdf", "ä.pdf", "c.pdf") for number in (7, 1, 3)]


def write_table(path: Path, pages: list[Page]) -> PageTable:
    write_pages(sort_pages(schemas.to_table(pages, schemas.PAGES)), path)
    return PageTable(path)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> PageTable:
    return write_table(tmp_path_factory.mktemp("pages") / "pages.arrow", PAGES)


def test_rows_are_in_order_of_file_and_page(table: PageTable) -> None:
    expected = [(file, number) for file in ("a.pdf", "b.pdf", "c.pdf", "ä.pdf") for number in (1, 3, 7)]
    assert [table.key(row) for row in range(len(table))] == expected


def test_a_page_is_found_by_its_name(table: PageTable) -> None:
    for page in PAGES:
        row = table.row(page.file, page.page_number)
        assert row is not None
        assert (table.key(row), table.text(row)) == ((page.file, page.page_number), page.text)
        assert table.page(page.file, page.page_number) == page


@pytest.mark.parametrize(("file", "number"), [("a.pdf", 0), ("a.pdf", 2), ("a.pdf", 8), ("", 1), ("d.pdf", 1), ("ä.pdf", 99)])
def test_a_page_that_is_not_there_has_no_row(table: PageTable, file: str, number: int) -> None:
    assert table.row(file, number) is None
    assert table.page(file, number) is None


def test_rows_of_neighbouring_files_are_joined(table: PageTable) -> None:
    assert table.row_ranges(["c.pdf", "b.pdf", "b.pdf"]) == [range(3, 9)]
    assert table.row_ranges(["ä.pdf", "lost.pdf", "a.pdf"]) == [range(3), range(9, 12)]
    assert table.row_ranges([]) == table.row_ranges(["lost.pdf"]) == []


def test_pages_go_over_the_borders_of_batches(tmp_path: Path) -> None:
    pages = [Page("a.pdf", number, 1, f"text {number}") for number in range(BATCH_ROWS + 10)]
    table = write_table(tmp_path / "pages.arrow", pages)
    for row in (0, BATCH_ROWS - 1, BATCH_ROWS, BATCH_ROWS + 9):
        assert table.page(*table.key(row)) == pages[row]


def test_columns_that_are_added_to_the_schema_are_kept(tmp_path: Path) -> None:
    pages = schemas.to_table(PAGES, schemas.PAGES).append_column("extra", pa.array([b"x"] * len(PAGES)))
    write_pages(sort_pages(pages), tmp_path / "pages.arrow")
    written = pa.ipc.open_file(str(tmp_path / "pages.arrow")).read_all()
    assert written["extra"].to_pylist() == [b"x"] * len(PAGES)
    assert PageTable(tmp_path / "pages.arrow").page("a.pdf", 1) in PAGES


def test_strings_have_64_bit_offsets_and_batches_a_fixed_length() -> None:
    """32-bit offsets end at 2 GiB. The texts here share one buffer, so that a table of 3 GiB takes 32 MiB."""
    texts = pa.chunked_array([pa.array(["x" * (1 << 20)] * 32)] * 96)
    files = pa.chunked_array([pa.array([f"file{number:04}" for number in range(len(texts))])])
    pages = pa.table({"file": files, "page_number": pa.array([1] * len(texts), pa.int32()), "text": texts})
    in_order = sort_pages(pages)
    assert in_order["text"].nbytes > 2**31
    assert in_order["text"].type == pa.large_string()
    assert in_order.num_rows == len(texts)
    small = in_order.select(["file", "page_number"])
    assert [batch.num_rows for batch in cut_batches(pa.concat_tables([small] * 3))] == [BATCH_ROWS, 3 * len(texts) - BATCH_ROWS]


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pages.arrow"
    write_table(path, PAGES)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(SearchIndexError, match=r"Build the index again"):
        PageTable(path)
