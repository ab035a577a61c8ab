"""The documents of a folder, and the parts that they are read in."""

import errno
import json
import os
import socket
import unicodedata
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import polars as pl
import pyarrow.parquet as pq
import pytest
from reportlab.pdfgen.canvas import Canvas

from drag_ray import schemas
from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.readers import document_parts, documents
from drag_ray.corpus.readers.documents import Span, count_pages, list_documents, read_document
from drag_ray.corpus.readers.page_reader import PageReader
from drag_ray.errors import ArtifactError, DataError
from drag_ray.search import page_table
from drag_ray.search.page_table import write_source


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
    write_empty(tmp_path, "y.txt", "y.md", "y.markdown", "y.html", "y.HTM", "y.docx")
    found, problems = list_documents(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in found] == [
        *("a/pages.jsonl.gz", "t.parquet"),
        *("a/c.PDF", "b.pdf", "d.pdf/e.png", "questions.pdf", "s.TIFF", "x.jpg"),
        *("y.HTM", "y.docx", "y.html", "y.markdown", "y.md", "y.txt"),
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


def write_table(path, *rows):
    path.write_text("".join(json.dumps({"file": file, "page": page, "text": text}) + "\n" for file, page, text in rows))
    return path


def write_parts(tmp_path, reader, documents):
    paths = []
    for part in document_parts.plan_parts(documents, count_pages):
        paths.append(document_parts.build_part_path(tmp_path / "parts", part, dict.fromkeys(documents, "")))
        document_parts.write_part(paths[-1], part, partial(read_document, root=tmp_path, reader=reader))
    return paths


def test_small_documents_share_a_part_and_large_ones_are_cut_by_pages(tmp_path, monkeypatch):
    small = [write_table(tmp_path / f"{name}.jsonl", (name, 1, "x")) for name in "abcdefghij"]
    large = tmp_path / "k.pdf"
    canvas = Canvas(str(large))
    for number in range(70):
        canvas.drawString(72, 700, f"page {number}")
        canvas.showPage()
    canvas.save()
    monkeypatch.setattr(document_parts, "_MAX_BYTES", large.stat().st_size - 1)
    plan = list(document_parts.plan_parts([*small, large, small[0]], count_pages))
    assert [tuple(span.path.name for span in part) for part in plan[:2]] == [
        tuple(f"{name}.jsonl" for name in "abcdefgh"),
        ("i.jsonl", "j.jsonl"),
    ]
    assert plan[2:] == [(Span(large, 1, 32),), (Span(large, 33, 64),), (Span(large, 65, 70),), (Span(small[0]),)]
    paths = [
        document_parts.build_part_path(tmp_path, part, dict.fromkeys((*small, large), content))
        for part in plan
        for content in "ab"
    ]
    assert len(set(paths)) == len(plan) * 2  # other bytes are another part


def test_the_bytes_of_a_part_are_bounded(tmp_path, monkeypatch):
    documents = [write_table(tmp_path / f"{number}.jsonl", ("f", number, "x" * 100)) for number in range(1, 7)]
    monkeypatch.setattr(document_parts, "_MAX_BYTES", 2 * documents[0].stat().st_size)
    assert [len(part) for part in document_parts.plan_parts(documents, count_pages)] == [2, 2, 2]


def test_parts_are_merged_in_order_and_repeated_pages_set_aside(tmp_path, reader, monkeypatch):
    monkeypatch.setattr(document_parts, "_MAX_DOCUMENTS", 2)
    monkeypatch.setattr(page_table, "_CHUNK_ROWS", 2)
    documents = [
        write_table(tmp_path / "x.jsonl", ("b", 1, "b1"), ("a", 2, "kept")),
        write_table(tmp_path / "y.jsonl", ("a", 2, "same part"), ("a", -1, "no page")),
        write_table(tmp_path / "z.jsonl", ("a", 2, "other part"), ("a", 1, "a1"), ("a", 10, "a10")),
    ]
    pages, problems = document_parts.merge_rows(pl.read_parquet(write_parts(tmp_path, reader, documents)))
    write_source(tmp_path / "pages.parquet", pages)
    table = pq.read_table(tmp_path / "pages.parquet")
    assert table.schema.equals(schemas.PAGES, check_metadata=True)
    assert [(row["file"], row["page_number"], row["total_pages"], row["text"]) for row in table.to_pylist()] == [
        ("a", 1, 10, "a1"),
        ("a", 2, 10, "kept"),
        ("a", 10, 10, "a10"),
        ("b", 1, 1, "b1"),
    ]
    assert [(problem.place.rpartition("/")[2], problem.reason[:24]) for problem in problems] == [
        ("y.jsonl:2", "column 'page': got -1 (i"),
        ("y.jsonl", "page 2 of 'a' comes agai"),
        ("z.jsonl", "page 2 of 'a' comes agai"),
    ]


def test_a_limit_keeps_the_first_pages(tmp_path, reader):
    paths = write_parts(tmp_path, reader, [write_table(tmp_path / "x.jsonl", ("b", 1, "b"), ("a", 2, "a2"), ("a", 1, "a1"))])
    assert document_parts.merge_rows(pl.read_parquet(paths), limit=2)[0]["text"].to_list() == ["a1", "a2"]


def test_parts_without_a_page_give_an_empty_table(tmp_path, reader):
    (tmp_path / "x.pdf").write_bytes(b"no")
    paths = write_parts(tmp_path, reader, [tmp_path / "x.pdf", tmp_path / "gone.pdf"])
    pages, problems = document_parts.merge_rows(pl.read_parquet(paths))
    write_source(tmp_path / "pages.parquet", pages)
    assert pq.read_table(tmp_path / "pages.parquet").equals(schemas.PAGES.empty_table())
    assert [(Path(problem.place).name, problem.kind) for problem in problems] == [
        ("x.pdf", "broken_file"),
        ("gone.pdf", "broken_file"),
    ]


def test_a_page_of_a_table_takes_the_image_that_its_pdf_has(tmp_path):
    reader = PageReader(CorpusConfig(ocr="off", page_images=True), ImageStore(tmp_path / "page_images"))
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.drawString(72, 700, "text layer")
    canvas.save()
    documents = [write_table(tmp_path / "ocr.jsonl", ("a.pdf", 1, "better text")), tmp_path / "a.pdf"]
    pages, _ = document_parts.merge_rows(pl.read_parquet(write_parts(tmp_path, reader, documents)))
    (row,) = pages.to_dicts()
    assert (row["text"], row["text_source"]) == ("better text", "jsonl")
    assert ImageStore(tmp_path / "page_images").open(row["image"]).mode == "RGB"
