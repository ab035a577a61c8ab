"""Limits of a document's process, and the end of a document that exceeds them."""

import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest
from pdf_bombs import build_nested_forms, build_page_count, build_self_reference, build_strokes
from reportlab.pdfgen.canvas import Canvas

from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.readers import document_parts, document_process
from drag_ray.corpus.readers.document_parts import ReadingCosts
from drag_ray.corpus.readers.document_process import DocumentProcess
from drag_ray.corpus.readers.documents import Span
from drag_ray.corpus.readers.page_reader import PageReader
from drag_ray.errors import DataError

pytestmark = pytest.mark.seconds

CONFIG = CorpusConfig(ocr="off", page_images=True)


@pytest.fixture(scope="module")
def process() -> Generator[DocumentProcess]:
    with closing(DocumentProcess(memory_gib=1, cpu_s=6)) as process:
        yield process


def read(process: DocumentProcess, path: Path) -> tuple[list[str], list[str]]:
    """The texts of a document and the reasons of its problems."""
    return read_span(process, Span(path))


def read_span(process: DocumentProcess, span: Span) -> tuple[list[str], list[str]]:
    root = span.path.parent
    reader, costs = PageReader(CONFIG, ImageStore(root / "images")), ReadingCosts(root / "costs", max_cpu_s=60)
    pages, problems = process.read(span, root, reader, costs)
    return [page.text for page in pages], [problem.reason for problem in problems]


def write_good(path: Path) -> Path:
    canvas = Canvas(str(path))
    canvas.drawString(72, 700, "the rotor")
    canvas.save()
    return path


@pytest.mark.parametrize(
    ("bomb", "reason"),
    [
        (build_self_reference(), "the process that read it ended (SIG"),
        (build_nested_forms(6, 20), "GiB (corpus.document_memory_gib)"),
        (build_page_count(1_000_000), "says that it has 1,000,000 pages, at most 10,000 are read"),
    ],
    ids=["self-reference", "nested forms", "page count"],
)
def test_a_bomb_is_set_aside_with_the_reason_and_the_next_document_is_read(
    process: DocumentProcess, tmp_path: Path, bomb: bytes, reason: str
) -> None:
    path = tmp_path / "bomb.pdf"
    path.write_bytes(bomb)
    started = time.monotonic()
    texts, reasons = read(process, path)
    assert (texts, len(reasons)) == ([], 1)
    assert reason in reasons[0]
    assert time.monotonic() - started < 60
    assert read(process, write_good(tmp_path / "good.pdf")) == (["the rotor"], [])


def test_a_document_has_its_time_for_itself(tmp_path: Path) -> None:
    endless = tmp_path / "endless.pdf"
    endless.write_bytes(build_strokes(60_000))  # some thirty seconds
    with closing(DocumentProcess(memory_gib=1, cpu_s=2)) as process:
        assert read(process, write_good(tmp_path / "good.pdf"))[1] == []
        [reason] = read(process, endless)[1]
    assert "takes more than 2 CPU seconds (corpus.document_cpu_s)" in reason


def test_a_document_that_goes_beyond_its_limits_three_times_is_read_no_further(process: DocumentProcess, tmp_path: Path) -> None:
    """Its parts cost three limits, however many they are; what else is read is not held up."""
    bomb = tmp_path / "bomb.pdf"
    bomb.write_bytes(build_self_reference())
    reasons: list[str] = []
    for first in range(1, 6 * 32, 32):
        found = read_span(process, Span(bomb, 1, first))  # parts of the one page that it has
        assert (found[0], len(found[1])) == ([], 1)
        reasons += found[1]
    assert ["ended (SIG" in reason for reason in reasons] == [True] * 3 + [False] * 3
    assert reasons[3:] == ["not read: 3 parts of this document went beyond a limit. Print it to a new PDF or remove it."] * 3
    assert read_span(process, Span(write_good(tmp_path / "good.pdf"), 1, 1)) == (["the rotor"], [])


def test_the_parts_of_a_document_have_a_limit_together(process: DocumentProcess, tmp_path: Path) -> None:
    """None of them takes as long as it may, and together they would take days."""
    path = write_good(tmp_path / "long.pdf")
    costs = ReadingCosts(tmp_path / "costs", max_cpu_s=3)
    reader = PageReader(CONFIG, ImageStore(tmp_path / "images"))
    found = [process.read(Span(path, 1, last), tmp_path, reader, costs) for last in range(1, 6)]  # a second each, rounded up
    assert [len(pages) for pages, _ in found] == [1, 1, 1, 0, 0]
    assert [problem.reason for _, problems in found for problem in problems] == [
        "not read: other parts of this document took 3 CPU seconds (60 times corpus.document_cpu_s). "
        "Raise the limit, split the document or remove it."
    ] * 2
    assert process.read(Span(path), tmp_path, reader, costs)[1] == []  # a document that is read at once has its own limit


def test_documents_share_a_process_and_pages_of_a_bomb_are_counted_in_it(process: DocumentProcess, tmp_path: Path) -> None:
    read(process, write_good(tmp_path / "a.pdf"))
    first = process._process.pid
    read(process, write_good(tmp_path / "b.pdf"))
    assert process._process.pid == first
    (tmp_path / "none.pdf").write_bytes(b"no")
    assert process.count_pages(tmp_path / "none.pdf", 10) == 1
    assert process.count_pages(write_good(tmp_path / "good.pdf"), 10) == 1


def test_a_document_that_says_that_it_has_too_many_pages_is_not_cut_into_parts_of_them(
    process: DocumentProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million pages would be 31,250 parts, each with the same problem."""
    monkeypatch.setattr(document_parts, "_MAX_BYTES", 0)
    path = tmp_path / "bomb.pdf"
    path.write_bytes(build_page_count(1_000_000))
    assert (
        list(document_parts.plan_parts([path], lambda path: process.count_pages(path, 1_000_000)))[-1][0].last_page == 1_000_000
    )
    assert list(document_parts.plan_parts([path], lambda path: process.count_pages(path, 10_000))) == [(Span(path),)]
    assert "says that it has 1,000,000 pages" in read(process, path)[1][0]


def test_a_process_that_waits_for_ever_is_ended_and_the_next_document_is_read(
    process: DocumentProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.run(time.sleep, 0)  # it has started
    with monkeypatch.context() as patch:
        patch.setattr(document_process, "_START_S", 0.5)
        patch.setattr(document_process, "_STRETCH", 0)
        with pytest.raises(DataError, match=r"has not ended after 0\.5 seconds, in which it was waiting"):
            process.run(time.sleep, 600)
    assert read(process, write_good(tmp_path / "good.pdf")) == (["the rotor"], [])
