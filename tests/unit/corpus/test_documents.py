import pytest
from reportlab.pdfgen.canvas import Canvas

from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.documents import Span, count_pages, list_documents, read_document
from drag_ray.corpus.page_images import PageImages
from drag_ray.corpus.page_reader import PageReader
from drag_ray.errors import DataError


@pytest.fixture
def reader(tmp_path):
    return PageReader(CorpusConfig(ocr="off"), PageImages(tmp_path / "page_images"))


def write_pdf(path, num_pages):
    path.parent.mkdir(exist_ok=True)
    canvas = Canvas(str(path))
    for number in range(1, num_pages + 1):
        canvas.drawString(72, 700, f"page {number}")
        canvas.showPage()
    canvas.save()
    return path


def test_documents_are_found_recursively_tables_first(tmp_path):
    names = ("b.pdf", "a/c.PDF", "a/pages.jsonl.gz", "t.parquet", "s.TIFF", "x.jpg", "questions.jsonl", ".h/x.pdf", "note.txt")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    found = [path.relative_to(tmp_path).as_posix() for path in list_documents(tmp_path)]
    assert found == ["a/pages.jsonl.gz", "t.parquet", "a/c.PDF", "b.pdf", "s.TIFF", "x.jpg"]


def test_a_folder_without_documents_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"holds no document. Expected \.pdf, \.png"):
        list_documents(tmp_path)


def test_a_broken_document_is_set_aside_and_the_file_name_is_relative(tmp_path, reader):
    good, bad = write_pdf(tmp_path / "sub" / "a.pdf", 1), tmp_path / "bad.pdf"
    bad.write_bytes(b"%PDF-1.4 rubbish")
    assert read_document(Span(good), tmp_path, reader)[0][0].file == "sub/a.pdf"
    pages, problems = read_document(Span(bad), tmp_path, reader)
    assert pages == []
    assert [problem.place for problem in problems] == [str(bad)]
    assert count_pages(bad) == 1


def test_a_range_of_pages_is_read_with_the_numbers_of_the_whole(tmp_path, reader):
    path = write_pdf(tmp_path / "a.pdf", 7)
    assert count_pages(path) == 7
    pages, _ = read_document(Span(path, 3, 4), tmp_path, reader)
    assert [(page.page_number, page.total_pages, page.text) for page in pages] == [(3, 7, "page 3"), (4, 7, "page 4")]
