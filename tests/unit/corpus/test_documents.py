import errno
import os
import socket
import unicodedata
from pathlib import Path
from unittest.mock import Mock

import pytest
from reportlab.pdfgen.canvas import Canvas

from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.readers import documents
from drag_ray.corpus.readers.documents import Span, count_pages, list_documents, read_document
from drag_ray.corpus.readers.page_reader import PageReader
from drag_ray.errors import ArtifactError, DataError


@pytest.fixture
def reader(tmp_path):
    return PageReader(CorpusConfig(ocr="off"), ImageStore(tmp_path / "page_images"))


def write_empty(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"")


def write_pdf(path, num_pages):
    path.parent.mkdir(exist_ok=True)
    canvas = Canvas(str(path))
    for number in range(1, num_pages + 1):
        canvas.drawString(72, 700, f"page {number}")
        canvas.showPage()
    canvas.save()
    return path


def test_documents_are_found_recursively_tables_first(tmp_path):
    write_empty(tmp_path, "b.pdf", "a/c.PDF", "a/pages.jsonl.gz", "t.parquet", "s.TIFF", "x.jpg", "questions.pdf", "d.pdf/e.png")
    found, problems = list_documents(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in found] == [
        *("a/pages.jsonl.gz", "t.parquet"),
        *("a/c.PDF", "b.pdf", "d.pdf/e.png", "questions.pdf", "s.TIFF", "x.jpg"),
    ]
    assert problems == []


def test_what_is_no_document_is_listed(tmp_path):
    write_empty(tmp_path, "a.pdf", "report.doc", "sub/note.rtf", "b.GIF", "c.webp", "README", "questions.jsonl")
    (tmp_path / "link").symlink_to(tmp_path / "sub", target_is_directory=True)
    found, problems = list_documents(tmp_path)
    assert [path.name for path in found] == ["a.pdf"]
    reasons = {Path(problem.place).name: problem.reason for problem in problems}
    assert sorted(reasons) == ["README", "b.GIF", "c.webp", "link", "note.rtf", "questions.jsonl", "report.doc"]
    assert reasons["report.doc"].startswith("a .doc file, expected .pdf, .png")
    assert reasons["b.GIF"].startswith("a .gif file")
    assert reasons["README"].startswith("a file without a suffix")
    assert reasons["link"].startswith("a link to a folder, which is not followed")
    assert reasons["questions.jsonl"].startswith("named as a table of questions and so not read as pages")
    assert {problem.kind for problem in problems} == {"unknown_file"}


def test_no_link_leads_out_of_the_folder_and_what_is_linked_to_is_read_once(tmp_path):
    root = tmp_path / "documents"
    write_empty(tmp_path, "documents/a.pdf", "documents/.store/blob", "secret.txt")
    (root / "out.txt").symlink_to(tmp_path / "secret.txt")
    (root / "up.txt").symlink_to("../secret.txt")
    (root / "again.pdf").symlink_to("a.pdf")
    (root / "stored.pdf").symlink_to(".store/blob")
    (tmp_path / "link").symlink_to(root, target_is_directory=True)
    for folder in (root, tmp_path / "link"):
        found, problems = list_documents(folder)
        assert [path.name for path in found] == ["a.pdf", "stored.pdf"]
        reasons = {Path(problem.place).name: problem.reason for problem in problems}
        assert reasons["out.txt"] == reasons["up.txt"] != ""
        assert reasons["out.txt"].startswith("a link that leads out of the folder of the documents")
        assert reasons["again.pdf"] == "a link to a.pdf, which is read itself. Remove it."
        assert {problem.kind for problem in problems} == {"linked_file"}


def test_the_questions_and_what_programs_keep_for_themselves_are_passed_over(tmp_path):
    write_empty(tmp_path, "a.pdf", "asked.jsonl", ".h/x.pdf", ".DS_Store", "~$report.docx", ".~lock.report.odt#")
    assert list_documents(tmp_path, tmp_path / "sub" / ".." / "asked.jsonl") == ([tmp_path / "a.pdf"], [])


def test_what_cannot_be_opened_is_listed_and_nothing_waits(tmp_path):
    write_empty(tmp_path, "a.pdf", os.fsdecode(b"w\xefng.pdf"), os.fsdecode(b"\xff/b.pdf"))
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "nothing.pdf").symlink_to(tmp_path / "gone.pdf")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.parquet"))
    found, problems = list_documents(tmp_path)
    assert found == [tmp_path / "a.pdf"]
    assert {problem.place: problem.reason.partition(":")[0] for problem in problems} == {
        **{f"{tmp_path}/{name}": "no regular file" for name in ("loop.png", "nothing.pdf", "pipe.jsonl", "socket.parquet")},
        f"{tmp_path}/w\\xefng.pdf": "its path is not UTF-8, so that no question can name its pages. Rename it.",
        f"{tmp_path}/\\xff/b.pdf": "its path is not UTF-8, so that no question can name its pages. Rename it.",
    }
    assert {problem.kind for problem in problems} == {"broken_file"}
    with pytest.raises(DataError, match=r"holds no document.*First of 1 other files: .*pipe\.jsonl: no regular file"):
        list_documents(tmp_path / "pipe.jsonl")


def test_a_folder_that_cannot_be_listed_is_named(tmp_path, monkeypatch):
    write_empty(tmp_path, "a.pdf", "closed/b.pdf")
    scandir = os.scandir

    def refuse(path):
        if Path(path).name == "closed":  # whoever runs this may well be allowed to read everything
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found, (problem,) = list_documents(tmp_path)
    assert (found, problem.place, problem.kind) == ([tmp_path / "a.pdf"], str(tmp_path / "closed"), "broken_file")
    assert "cannot be listed (Permission denied)" in problem.reason


def test_names_that_differ_by_unicode_normalisation_are_two_documents(tmp_path, reader):
    names = [unicodedata.normalize(form, "é.pdf") for form in ("NFC", "NFD")]
    for name in names:
        write_pdf(tmp_path / name, 1)
    found, problems = list_documents(tmp_path)
    files = [page.file for path in found for page in read_document(Span(path), tmp_path, reader)[0]]
    assert (sorted(files), problems) == (sorted(names), [])


def test_a_folder_without_documents_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"holds no document. Expected \.pdf, \.png"):
        list_documents(tmp_path)
    write_empty(tmp_path, "a.doc", "b.doc")
    with pytest.raises(DataError, match=r"holds no document.*First of 2 other files: .*a\.doc: a \.doc file"):
        list_documents(tmp_path)


def test_a_broken_document_is_set_aside_and_the_file_name_is_relative(tmp_path, reader):
    good, bad = write_pdf(tmp_path / "sub" / "a.pdf", 1), tmp_path / "bad.pdf"
    bad.write_bytes(b"%PDF-1.4 rubbish")
    assert read_document(Span(good), tmp_path, reader)[0][0].file == "sub/a.pdf"
    pages, problems = read_document(Span(bad), tmp_path, reader)
    assert pages == []
    assert [(problem.place, problem.kind) for problem in problems] == [(str(bad), "broken_file")]
    assert count_pages(bad) == 1


@pytest.mark.parametrize("raised", [RuntimeError, RecursionError, OSError])
def test_whatever_a_library_raises_sets_aside_the_document(tmp_path, reader, monkeypatch, raised):
    path = write_pdf(tmp_path / "a.pdf", 1)
    monkeypatch.setattr(documents, "read_pdf", Mock(side_effect=raised("why")))
    pages, (problem,) = read_document(Span(path), tmp_path, reader)
    assert (pages, problem.reason) == ([], f"cannot be read ({raised.__name__}: why). Repair it or remove it.")


@pytest.mark.parametrize("raised", [MemoryError, ImportError, ArtifactError, KeyboardInterrupt])
def test_what_is_no_fault_of_a_document_ends_the_run(tmp_path, reader, monkeypatch, raised):
    path = write_pdf(tmp_path / "a.pdf", 1)
    monkeypatch.setattr(documents, "read_pdf", Mock(side_effect=raised))
    with pytest.raises(raised):
        read_document(Span(path), tmp_path, reader)


def test_a_range_of_pages_is_read_with_the_numbers_of_the_whole(tmp_path, reader):
    path = write_pdf(tmp_path / "a.pdf", 7)
    assert count_pages(path) == 7
    pages, _ = read_document(Span(path, 3, 4), tmp_path, reader)
    assert [(page.page_number, page.total_pages, page.text) for page in pages] == [(3, 7, "page 3"), (4, 7, "page 4")]
