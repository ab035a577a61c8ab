import json
from functools import partial
from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas

from drag_ray import schemas
from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.readers import document_parts
from drag_ray.corpus.readers.documents import Span, count_pages, read_document
from drag_ray.corpus.readers.page_reader import PageReader


@pytest.fixture
def reader(tmp_path):
    return PageReader(CorpusConfig(ocr="off"), ImageStore(tmp_path / "page_images"))


def write_table(path, *rows):
    path.write_text("".join(json.dumps({"file": file, "page": page, "text": text}) + "\n" for file, page, text in rows))
    return path


def write_parts(tmp_path, reader, documents):
    paths = []
    for part in document_parts.plan_parts(documents, count_pages):
        paths.append(document_parts.build_part_path(tmp_path / "parts", part))
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
    assert len({document_parts.build_part_path(tmp_path, part) for part in plan}) == len(plan)


def test_the_bytes_of_a_part_are_bounded(tmp_path, monkeypatch):
    documents = [write_table(tmp_path / f"{number}.jsonl", ("f", number, "x" * 100)) for number in range(1, 7)]
    monkeypatch.setattr(document_parts, "_MAX_BYTES", 2 * documents[0].stat().st_size)
    assert [len(part) for part in document_parts.plan_parts(documents, count_pages)] == [2, 2, 2]


def test_parts_are_merged_in_order_and_repeated_pages_set_aside(tmp_path, reader, monkeypatch):
    monkeypatch.setattr(document_parts, "_MAX_DOCUMENTS", 2)
    monkeypatch.setattr(document_parts, "_CHUNK_PAGES", 2)
    documents = [
        write_table(tmp_path / "x.jsonl", ("b", 1, "b1"), ("a", 2, "kept")),
        write_table(tmp_path / "y.jsonl", ("a", 2, "same part"), ("a", -1, "no page")),
        write_table(tmp_path / "z.jsonl", ("a", 2, "other part"), ("a", 1, "a1"), ("a", 10, "a10")),
    ]
    pages, problems = document_parts.merge_parts(write_parts(tmp_path, reader, documents))
    assert pages.schema.equals(schemas.PAGES, check_metadata=True)
    assert [(row["file"], row["page_number"], row["total_pages"], row["text"]) for row in pages.to_pylist()] == [
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
    assert document_parts.merge_parts(paths, limit=2)[0]["text"].to_pylist() == ["a1", "a2"]


def test_parts_without_a_page_give_an_empty_table(tmp_path, reader):
    (tmp_path / "x.pdf").write_bytes(b"no")
    pages, problems = document_parts.merge_parts(write_parts(tmp_path, reader, [tmp_path / "x.pdf", tmp_path / "gone.pdf"]))
    assert (pages.num_rows, pages.schema) == (0, schemas.PAGES)
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
    pages, _ = document_parts.merge_parts(write_parts(tmp_path, reader, documents))
    (row,) = pages.to_pylist()
    assert (row["text"], row["text_source"]) == ("better text", "jsonl")
    assert ImageStore(tmp_path / "page_images").open(row["image"]).mode == "RGB"
