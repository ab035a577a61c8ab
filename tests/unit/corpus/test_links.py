"""Links of Markdown, HTML and PDF: each on its page, few enough, and the documents that addresses name."""

from pathlib import Path

import polars as pl
import pytest
from reportlab.pdfgen.canvas import Canvas

from drag_ray.corpus import links
from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.links import LinkedFiles, LinkingPage, add_links, read_links
from drag_ray.corpus.readers.document_parts import merge_links, merge_rows, write_part
from drag_ray.corpus.readers.documents import Span, read_document
from drag_ray.corpus.readers.page_reader import PageReader
from drag_ray.storage import artifacts
from drag_ray.types import Evidence, Page


def read(path: Path, data: bytes | None = None) -> list[tuple[str, ...]]:
    """The links of each page of a document, each page of two words where it has no pages."""
    if data is not None:
        path.write_bytes(data)
    reader = PageReader(CorpusConfig(page_words=2, ocr="off"), ImageStore(path.parent / "images"))
    pages, problems = read_document(Span(path), path.parent, reader)
    assert problems == []
    return [page.links if isinstance(page, LinkingPage) else () for page in pages]


def test_links_of_markdown_are_on_the_page_where_their_words_begin(tmp_path: Path) -> None:
    text = b"""See [the  \n fuel](fuel.md#top) <https://x.example/a?b>\n\n\nfour [five][1] ![p](p.png) <a href=" u v.md ">six</a>

[1]: <../in ner/c.md>
[mail](mailto:a@b.c) [run](javascript:alert(1)) [data](data:text/plain,x) [end](e.md)
"""
    found = [("fuel.md#top",), ("https://x.example/a?b",), ("../in%20ner/c.md",), ("u v.md",), (), ("e.md",)]
    assert read(tmp_path / "a.md", text) == found


def test_links_of_html_are_on_the_page_where_they_stand(tmp_path: Path) -> None:
    page_break = "<div style='page-break-after: always'></div>"
    html = f"""<p>one <a href=a.html>  two </a><a name=x>three</a><a href=" ">four</a><a hidden href=no.html>no</a>{page_break}
    {page_break}<a href="b.html"><img src=b.png></a> <map><area href='c.html'></map><p>H<sub>2</sub>O <a href='a.html'>x</a>
    <a href='a.html'>y</a>{page_break}<p>end</p><a href=last.html></a>"""
    assert read(tmp_path / "a.html", html.encode()) == [("a.html",), (), ("b.html", "c.html", "a.html"), ("last.html",)]


def test_links_of_a_pdf_are_its_annotations(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.drawString(72, 720, "first")
    canvas.linkURL("https://x.example/b%20c.pdf#page=2", (72, 700, 100, 720))
    canvas.linkURL("mailto:a@b.c", (72, 700, 100, 720))
    canvas.linkURL("other one.pdf", (72, 700, 100, 720), kind="GoToR")
    canvas.linkRect("", "second", (72, 700, 100, 720))
    canvas.showPage()
    canvas.bookmarkPage("second")
    canvas.drawString(72, 720, "second")
    canvas.save()
    assert read(tmp_path / "a.pdf") == [("https://x.example/b%20c.pdf#page=2", "other%20one.pdf"), ()]


def test_a_page_keeps_so_many_addresses_once_each_and_none_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_MAX_LINKS", 3)
    page = Page("a.md", 1, 1, "text")
    many = ["a.md"] * 9 + [f"{number}.md" for number in range(100_000)]
    assert add_links(page, many) == LinkingPage("a.md", 1, 1, "text", links=("a.md", "0.md", "1.md"))
    monkeypatch.setattr(links, "_MAX_PAGE_CHARS", 9)
    assert add_links(page, ["a.md", "b.md", "a.md", "c.md"]) == LinkingPage("a.md", 1, 1, "text", links=("a.md", "b.md"))
    assert add_links(page, ["x" * 2000, "\n", "\0", "tel:1", "#top", "JavaScript:x()", "c:\\a.md"]) is page


@pytest.mark.seconds
def test_of_very_many_links_the_first_are_kept(tmp_path: Path) -> None:
    [found] = read(tmp_path / "a.html", b"<pre>" + b"".join(b"<a href=%d.html></a>" % number for number in range(200_000)))
    assert len(found) == 1000


def test_the_table_has_the_links_of_the_first_of_two_same_pages(tmp_path: Path) -> None:
    pages = [Page("b.md", 1, 1, "first"), add_links(Page("a.md", 2, 2, "second"), ["b.md", "c.md"]), Page("a.md", 1, 2, "x")]
    again = [add_links(Page("b.md", 1, 1, "again"), ["a.md"]), add_links(Page("c.md", 1, 1, "c"), ["a.md"])]
    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    for path, found in zip(paths, (pages, again), strict=True):
        write_part(path, (Span(path),), lambda _, found=found: (found, []))
    rows = pl.read_parquet(paths)
    assert merge_rows(rows)[0].height == 4
    artifacts.write_parquet(tmp_path / links.TABLE_NAME, merge_links(rows))
    assert read_links(tmp_path) == {Evidence("a.md", 2): ("b.md", "c.md"), Evidence("c.md", 1): ("a.md",)}
    artifacts.write_parquet(tmp_path / links.TABLE_NAME, merge_links(rows.clear()))
    assert read_links(tmp_path) == {}


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("limits.md", ("docs/limits.md", None)),
        ("./../docs/limits#speed", ("docs/limits.md", None)),
        ("Gr%C3%B6%C3%9Fe.md?x=1#page=7", ("docs/Größe.md", 7)),
        ("..\\index.html", ("index.html", None)),
        ("#view=fit&page=3", ("docs/crew.md", 3)),
        ("/docs/limits.md", ("docs/limits.md", None)),
        ("/index.html", ("index.html", None)),
        ("file:///home/a/docs/limits.md", ("docs/limits.md", None)),
        ("https://x.example/wiki/docs/limits/", ("docs/limits.md", None)),
        ("https://x.example/files/annual-report.pdf", ("annual-report.pdf", None)),
        ("//mirror.example/a.html", ("mirror.example/a.html", None)),
        ("", ("docs/crew.md", None)),
        ("https://x.example/docs/crew.md", ("docs/crew.md", None)),
        ("index.html", ("docs/index.html", None)),
        ("https://x.example/mirror.example/de/a.html", None),
        *(
            (address, None)
            for address in (
                "https://x.example/docs/index.html",
                "https://x.example/index.html",
                "/a/index.html",
                "../../limits.md",
                "twice",
            )
        ),
        *((address, None) for address in ("http://[", "%00%ff", "https://x.example", "/" * 900, "/" + "a/" * 450)),
    ],
)
def test_an_address_names_a_document_of_the_collection(address: str, found: tuple[str, int | None] | None) -> None:
    names = (
        "docs/crew.md",
        "docs/limits.md",
        "docs/Größe.md",
        "index.html",
        "annual-report.pdf",
        "mirror.example/a.html",
        "docs/index.html",
    )
    files = LinkedFiles([*names, "docs/twice.md", "docs/twice.pdf"])
    assert files.find("docs/crew.md", address) == found
