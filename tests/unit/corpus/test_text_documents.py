"""Pages of plain text, Markdown, HTML and Word: where they end, what is in them, and what hostile ones lead to."""

import io
import resource
import zipfile
from pathlib import Path
from typing import Any

import docx
import pytest
from docx.enum.section import WD_SECTION
from docx.enum.text import WD_BREAK
from hypothesis import given
from hypothesis import strategies as st
from text_bombs import build_entities, build_outside_entity, build_paragraphs, build_word, build_zip_bomb

from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.readers.documents import Span, read_document
from drag_ray.corpus.readers.html_text import extract_html
from drag_ray.corpus.readers.page_reader import PageReader
from drag_ray.corpus.readers.text_documents import cut_pages, extract_markdown
from drag_ray.corpus.readers.word_numbers import write_number


def build_reader(folder: Path, **options: Any) -> PageReader:
    return PageReader(CorpusConfig(**options), ImageStore(folder / "images"))


def read(path: Path, data: bytes, **options: Any) -> tuple[list[str], list[str]]:
    """The texts of a document of these bytes, and the reasons of its problems."""
    path.write_bytes(data)
    pages, problems = read_document(Span(path), path.parent, build_reader(path.parent, **options))
    assert [(page.file, page.page_number, page.total_pages, page.text_source) for page in pages] == [
        (path.name, number, len(pages), "text") for number in range(1, len(pages) + 1)
    ]
    return [page.text for page in pages], [problem.reason for problem in problems]


@pytest.mark.parametrize(
    ("text", "pages"),
    [
        ("one two three four five", ["one two ", "three four ", "five"]),
        ("one two", ["one two"]),
        ("", [""]),
        ("a\n b\n\nc", ["a\n b\n\n", "c"]),
        ("one two three\ffour", ["one two three", "four"]),
        ("one\f\fthree\f\n", ["one", "", "three"]),
        ("東京大学 rotor", ["東京", "大学 ", "rotor"]),
        ("x" * 250, ["x" * 200, "x" * 50]),
    ],
)
def test_pages_end_at_breaks_or_after_so_many_words(text: str, pages: list[str]) -> None:
    assert list(cut_pages(text, 2)) == pages


@pytest.mark.seconds
@given(st.text(st.sampled_from("ab \n\t\u3000東京\r\x1c")), st.integers(1, 5))
def test_without_breaks_nothing_is_lost(text: str, page_words: int) -> None:
    assert "".join(cut_pages(text, page_words)) == text


@pytest.mark.parametrize(
    "data",
    ["Größe".encode(), b"\xef\xbb\xbf" + "Größe".encode(), "\ufeffGröße".encode("utf-16-le"), "\ufeffGröße".encode("utf-16-be")],
    ids=["UTF-8", "UTF-8 with mark", "UTF-16 LE", "UTF-16 BE"],
)
@pytest.mark.parametrize("suffix", ["txt", "md", "html"])
def test_the_encoding_is_utf_8_or_that_of_the_mark(tmp_path: Path, data: bytes, suffix: str) -> None:
    assert read(tmp_path / f"a.{suffix}", data) == (["Größe"], [])


@pytest.mark.parametrize("data", ["Größe".encode("latin-1"), "Größe".encode("utf-16-le"), b"\x7fELF\0\0", b"\xff\xfea"])
def test_any_other_encoding_is_set_aside_and_not_guessed(tmp_path: Path, data: bytes) -> None:
    texts, (reason,) = read(tmp_path / "a.TXT", data)
    assert texts == []
    assert "is no text in utf-" in reason
    assert "Save it as UTF-8" in reason


def test_html_is_what_a_browser_shows_and_may_name_its_encoding() -> None:
    text = extract_html(
        b"""<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html><html><head><title>t</title><style>p {color: red}</style></head>
        <body><h1>Rotor   speed</h1><p>One<br>two <b>th</b>ree &amp; four<table><tr><td>a<td>b<tr><td>c<td>d</table>
        <pre>if x:\n    y</pre><script>no</script><!-- no --></body></html>After the end<p>and more"""
    )
    assert text.text.strip() == "t\nRotor speed\nOne\ntwo three & four\na\tb\nc\td\nif x:\n    y\nAfter the end\nand more"
    assert "“Größe”" in extract_html(b'<meta http-equiv=x content="text/html; charset=ISO-8859-1">\x93Gr\xf6\xdfe\x94').text
    assert "Größe" in extract_html("<meta charset='latin1'>Größe".encode()).text  # it says so, and is not


@pytest.mark.parametrize(
    "page_break",
    [
        '<div style="page-break-after: always"></div>',
        "<p style='color: red; BREAK-BEFORE:page'>",
        '<br clear="all" style="mso-special-character:line-break;page-break-before:always">',
    ],
)
def test_style_breaks_pages_of_html(tmp_path: Path, page_break: str) -> None:
    assert read(tmp_path / "a.htm", f"<p>one</p>{page_break}two".encode()) == (["one", "two"], [])


def test_markdown_is_what_it_shows_and_its_lists_have_their_numbers() -> None:
    source = "# Rotor *speed*\n\nSee [the manual](http://x/y).\n\n* a\n* b\n\n|c|d|\n|-|-|\n|1|2|\n\n```py\nif x:\n    y\n```\n"
    assert extract_markdown(source.encode()).text.strip() == "Rotor speed\nSee the manual.\na\nb\nc\td\n1\t2\nif x:\n    y"
    assert (
        extract_markdown(b"3. Switch off.\n4. Open.\n\n- x\n\n![valve](v.png)").text.strip()
        == "3. Switch off.\n4. Open.\nx\nvalve"
    )


def test_markdown_has_breaks_of_text_and_of_html(tmp_path: Path) -> None:
    data = b'one\n\f\n<!-- nothing -->\n\f\n\ntwo\n\n<div style="break-after: page"></div>\n\nthree\n'
    assert read(tmp_path / "a.md", data) == (["one", "", "two", "three"], [])


def test_word_pages_end_at_breaks_of_every_kind(tmp_path: Path) -> None:
    document = docx.Document()
    document.add_heading("Rotor")
    document.add_paragraph("one").add_run().add_break(WD_BREAK.LINE)
    document.add_paragraph("and").add_run().add_break(WD_BREAK.PAGE)
    document.add_paragraph("two").paragraph_format.page_break_before = False
    document.add_paragraph("three").paragraph_format.page_break_before = True
    document.add_section(WD_SECTION.NEW_PAGE)
    document.add_paragraph("four")
    document.add_section(WD_SECTION.CONTINUOUS)
    table = document.add_table(2, 2)
    for cell, text in zip((cell for row in table.rows for cell in row.cells), "abcd", strict=True):
        cell.text = text
    document.save(str(tmp_path / "made.docx"))
    texts, problems = read(tmp_path / "a.docx", (tmp_path / "made.docx").read_bytes())
    assert problems == []
    assert [text.split("\n") for text in texts] == [
        ["Rotor", "one", "", "and"],
        ["two"],
        ["three"],
        ["four", "", "a\tb\t", "c\td"],
    ]


def test_a_break_that_word_found_where_its_author_made_one_counts_once(tmp_path: Path) -> None:
    run = "<w:p><w:r>{}</w:r></w:p>"
    rendered, made = "<w:lastRenderedPageBreak/>", '<w:br w:type="page"/>'
    body = "".join(
        run.format(item)
        for item in ("<w:t>one</w:t>" + made, rendered + "<w:t>two</w:t>", rendered + "<w:t>three</w:t>" + made, made)
    )
    assert read(tmp_path / "a.docx", build_word(body)) == (["one", "two", "three", ""], [])


def test_word_notes_stand_where_they_are_referred_to_and_nothing_stands_twice(tmp_path: Path) -> None:
    note = '<w:footnote w:id="2"><w:p><w:r><w:t>at sea</w:t></w:r></w:p></w:footnote>'
    box = "<w:p><w:r><w:t>box</w:t></w:r></w:p>"
    body = (
        '<w:p><w:pPr><w:tabs><w:tab w:val="left"/></w:tabs></w:pPr>'
        '<w:r><w:t>speed</w:t><w:footnoteReference w:id="2"/><w:tab/></w:r>'
        "<w:del><w:r><w:delText>deleted</w:delText></w:r></w:del><w:moveFrom><w:r><w:t>moved</w:t></w:r></w:moveFrom></w:p>"
        f"<mc:AlternateContent><mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback></mc:AlternateContent>"
    )
    assert read(tmp_path / "a.docx", build_word(body, footnotes=note)) == (["speed [at sea] \t\nbox"], [])


def build_level(level: int, form: str, text: str, start: int = 1) -> str:
    return f'<w:lvl w:ilvl="{level}"><w:start w:val="{start}"/><w:numFmt w:val="{form}"/><w:lvlText w:val="{text}"/></w:lvl>'


def build_item(text: str, number_id: int = 1, level: int = 0) -> str:
    place = f'<w:pPr><w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number_id}"/></w:numPr></w:pPr>'
    return f"<w:p>{place}<w:r><w:t>{text}</w:t></w:r></w:p>"


def test_word_lists_have_their_numbers(tmp_path: Path) -> None:
    levels = build_level(0, "decimal", "%1.") + build_level(1, "lowerLetter", "%1.%2)") + build_level(2, "bullet", "o")
    numbering = (
        f'<w:abstractNum w:abstractNumId="7">{levels}</w:abstractNum>'
        f'<w:abstractNum w:abstractNumId="8">{build_level(0, "upperRoman", "Part %1", start=4)}</w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num><w:num w:numId="3"><w:abstractNumId w:val="8"/></w:num>'
        '<w:num w:numId="2"><w:abstractNumId w:val="7"/>'
        '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="1"/></w:lvlOverride></w:num>'
    )
    body = "".join(
        [
            *(build_item("one"), build_item("under", level=1), build_item("dot", level=2), build_item("next", level=1)),
            *(build_item("two"), build_item("first", level=1), build_paragraphs("between"), build_item("three")),
            *(build_item("anew", 2), build_item("four", 3), build_item("of no list", 9)),
        ]
    )
    (text,), _ = read(tmp_path / "a.docx", build_word(body, numbering=numbering))
    assert text.split("\n") == [
        *("1. one", "1.a) under", "dot", "1.b) next", "2. two", "2.a) first", "between", "3. three", "1. anew"),
        *("Part IV four", "of no list"),
    ]


def test_word_shows_formulas_symbols_raised_digits_and_descriptions_of_pictures(tmp_path: Path) -> None:
    run = "<m:r><m:t>{}</m:t></m:r>"
    part = "<m:{0}>{1}</m:{0}>"
    fraction = part.format("f", part.format("num", run.format("a+b")) + part.format("den", run.format("2")))
    power = part.format("sSup", part.format("e", run.format("x")) + part.format("sup", run.format("2")))
    shifted = '<w:r><w:rPr><w:vertAlign w:val="{}script"/></w:rPr><w:t>{}</w:t></w:r>'
    picture = '<wp:docPr xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing" id="1" descr="valve"/>'
    body = (
        f"<w:p><m:oMath>{fraction}{run.format('=')}{power}</m:oMath></w:p>"
        f"<w:p><w:r><w:t>10</w:t></w:r>{shifted.format('super', 6)}<w:r><w:t> H</w:t></w:r>{shifted.format('sub', 2)}"
        f'<w:r><w:t>O</w:t></w:r></w:p><w:p><w:r><w:sym w:font="Symbol" w:char="F06D"/><w:t>m</w:t></w:r></w:p>'
        f"<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:t>hidden</w:t></w:r><w:r><w:drawing>{picture}</w:drawing></w:r></w:p>"
    )
    (text,), _ = read(tmp_path / "a.docx", build_word(body))
    assert text.split("\n") == ["(a+b)/2=x²", "10⁶ H₂O", "μm", " [valve]"]


def test_word_shifts_and_hides_by_styles_and_by_position_too(tmp_path: Path) -> None:
    style = '<w:style w:styleId="{}">{}<w:rPr>{}</w:rPr></w:style>'
    styles = (
        style.format("power", "", '<w:vertAlign w:val="superscript"/>')
        + style.format("unit", '<w:basedOn w:val="power"/>', "<w:b/>")
        + style.format("secret", '<w:basedOn w:val="secret"/>', "<w:vanish/>")
    )
    run = "<w:r><w:rPr><w:{}/></w:rPr><w:t>{}</w:t></w:r>"
    ten, six = run.format("b", 10), run.format('rStyle w:val="unit"', 6)
    nine, one = run.format('position w:val="8"', 9), run.format('position w:val="2"', 1)
    secret = '<w:pPr><w:pStyle w:val="secret"/></w:pPr>'
    shown = run.format('vanish w:val="0"', "shown")
    body = f"<w:p>{ten}{six}</w:p><w:p>{ten}{nine}{one}</w:p><w:p>{secret}{ten}{shown}</w:p>"
    body += '<w:p><w:r><w:footnoteReference w:id="2"/></w:r></w:p>'
    note = f'<w:footnote w:id="2"><w:p>{ten}{six}</w:p></w:footnote>'
    relation = '<Relationship Id="rId9" Type="x/styles" Target="styles.xml"/>'
    spaces = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    data = add_part(build_word(body, footnotes=note, more=relation), "word/styles.xml", f"<w:styles {spaces}>{styles}</w:styles>")
    (text,), _ = read(tmp_path / "a.docx", data)
    assert text.split("\n") == ["10⁶", "10⁹1", "shown", " [10⁶]"]


def add_part(document: bytes, name: str, text: str) -> bytes:
    """The document with another part, or with one in place of its own."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(document)) as source, zipfile.ZipFile(stream, "w") as target:
        for own in source.namelist():
            if own != name:
                target.writestr(own, source.read(own))
        target.writestr(name, text)
    return stream.getvalue()


@pytest.mark.parametrize("name", ["_rels/.rels", "word/_rels/document.xml.rels", "word/numbering.xml", "word/footnotes.xml"])
@pytest.mark.parametrize(
    "text", ["", "<w:cut", '<Relationships><Relationship Type="x/officeDocument" Target="gone.xml"/></Relationships>']
)
def test_a_part_that_cannot_be_read_does_not_cost_the_document(tmp_path: Path, name: str, text: str) -> None:
    assert read(tmp_path / "a.docx", add_part(build_word(build_paragraphs("lamp")), name, text)) == (["lamp"], [])


@pytest.mark.parametrize(
    "relation",
    [
        '<Relationship Id="rId9" Type="x/image" Target="../NULL"/>',
        '<Relationship Id="rId9" Type="x/hyperlink" Target="http://[bad" TargetMode="External"/>',
        '<Relationship Id="rId9" Type="x/styles" Target="gone.xml"/>',
        '<Relationship Id="rId9" Type="x/endnotes" Target="/../../../etc/passwd"/>',
        "<Relationship/>",
    ],
)
def test_a_relationship_that_leads_nowhere_does_not_cost_the_document(tmp_path: Path, relation: str) -> None:
    assert read(tmp_path / "a.docx", build_word(build_paragraphs("lamp"), more=relation)) == (["lamp"], [])


def test_word_documents_of_the_strict_kind_are_read(tmp_path: Path) -> None:
    strict = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(build_word(build_paragraphs("lamp")))) as source, zipfile.ZipFile(strict, "w") as target:
        for name in source.namelist():
            data = source.read(name).replace(
                b"http://schemas.openxmlformats.org/wordprocessingml/2006/main",
                b"http://purl.oclc.org/ooxml/wordprocessingml/main",
            )
            target.writestr(name, data)
    assert read(tmp_path / "a.docx", strict.getvalue()) == (["lamp"], [])


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("<title>Vega lathe</title><p>x", "Vega lathe\nx"),
        ("<p>E = <math><mi>m</mi><msup><mi>c</mi><mn>2</mn></msup></math>.", "E = mc²."),
        ("<math><mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mi>c</mi></mfrac></math>", "(a+b)/c"),
        ("<svg><style>no</style><text>motor</text><text>42 kW</text><defs><text>no</text></defs></svg>", "motor\n42 kW"),
        ("<img src=x alt='Valve V3 opens'>", "Valve V3 opens"),
        ("10<sup>6</sup> H<sub>2</sub>O 1<sup>st</sup>", "10⁶ H₂O 1st"),
        ("<ol start=3 type=a><li>x<li value=7>y<ol><li>z</ol><li>q</ol>", "c. x\ng. y\n1. z\nh. q"),
        ("<ol reversed><li>x<li>y</ol><ul><li>z</ul>", "2. x\n1. y\nz"),
        ("<ol style='list-style: none'><li>x</ol>", "x"),
        ("a<span hidden>no</span><span style='display:none'>no</span>b", "ab"),
    ],
)
def test_html_shows_titles_formulas_drawings_descriptions_and_numbers(source: str, shown: str) -> None:
    assert extract_html(source.encode()).text.strip() == shown


@pytest.mark.parametrize(
    ("number", "form", "written"),
    [(28, "lowerLetter", "bb"), (1994, "upperRoman", "MCMXCIV"), (0, "lowerRoman", "0"), (7, "decimalZero", "07"), (5, "?", "5")],
)
def test_numbers_have_the_forms_of_word(number: int, form: str, written: str) -> None:
    assert write_number(number, form) == written


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.docx", b"\xd0\xcf\x11\xe0 an older format", "is no .docx"),
        ("a.docx", build_word(build_paragraphs("x"))[:-30], "is no .docx"),
        ("a.docx", build_word("<w:p>" * 5_000 + "</w:p>" * 5_000), "Excessive depth"),
        ("a.docx", build_zip_bomb(3), "holds more than 2 MiB. Split it"),
        ("a.docx", build_entities(9), "cannot be read"),
        ("a.html", b"<div>" * 5_000 + b"x", "Excessive depth"),
        ("a.md", b"> " * 5_000 + b"x", "RecursionError"),
        ("a.txt", b"x" * (2**21 + 1), "holds more than 2 MiB"),
        ("a.txt", b"a\f" * 200, "says that it has 101 pages, at most 100 are read"),
        ("a.txt", b"a " * 300_000, "says that it has 101 pages"),
    ],
    ids=["older", "cut", "deep xml", "zip bomb", "entities", "deep html", "deep markdown", "large", "breaks", "words"],
)
def test_a_hostile_text_is_set_aside_with_the_reason(
    tmp_path: Path, name: str, data: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drag_ray.corpus.readers.text_documents._MAX_BYTES", 2 * 2**20)
    texts, (found,) = read(tmp_path / name, data, document_pages=100)
    assert texts == []
    assert reason in found


def test_no_file_of_the_machine_gets_into_a_page(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the password")
    texts, _ = read(tmp_path / "a.docx", build_outside_entity(f"file://{tmp_path}/secret"))
    assert "password" not in "".join(texts)


def test_a_line_of_a_gibibyte_is_set_aside_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with path.open("wb") as stream:
        stream.truncate(2**30)
    pages, (problem,) = read_document(Span(path), tmp_path, build_reader(tmp_path))
    assert (pages, "holds more than 64 MiB" in problem.reason) == ([], True)


def test_a_text_without_blanks_takes_linear_time(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    texts, _ = read(tmp_path / "a.txt", b"x" * 2**21 + b"\f")
    assert texts == ["x" * 2**21]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - before < 5
