"""The text of a PDF's page: turned pages, forms, notes, and layers that cannot be what a reader sees."""

import io
from pathlib import Path

import pypdfium2
import pytest
from pdf_bombs import build_pdf
from PIL import Image
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.problems import Problem
from drag_ray.corpus.readers import ocr
from drag_ray.corpus.readers.page_reader import PageReader
from drag_ray.corpus.readers.pdf import read_pdf
from drag_ray.types import Page

TABLE = ["Outer race 0.25 mm cold", "Inner race 0.31 mm cold", "Cage 0.12 mm warm", "Measured at twenty degrees"]
LONG = "Shareholders representing seventy percent of outstanding voting securities approved distributing undistributed earnings. "
"""More than the hundred letters from which on a layer is not too little."""


@pytest.fixture
def recognised(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Answers of OCR, in turn; those that are left were not asked for."""
    answers: list[str] = []
    monkeypatch.setattr(ocr, "recognise", lambda image: answers.pop(0))
    return answers


def read(path: Path, **options: object) -> tuple[list[Page], list[Problem]]:
    return read_pdf(path, "a.pdf", PageReader(CorpusConfig.model_validate(options), ImageStore(path.parent / "images")))


def write(path: Path, *objects: bytes) -> Path:
    path.write_bytes(build_pdf(*objects))
    return path


def build_stream(data: bytes, head: bytes = b"") -> bytes:
    return b"<<%s/Length %d>>\nstream\n%s\nendstream" % (head, len(data), data)


def write_noted_page(path: Path, annotations: bytes, text: str = LONG, catalogue: bytes = b"", *more: bytes) -> Path:
    """A page of one text in a small font, with annotations; `more` are objects from number 6."""
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>/Annots[%s]>>"
    return write(
        path,
        b"<</Type/Catalog/Pages 2 0 R%s>>" % catalogue,
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        page % annotations,
        build_stream(b"BT /F 8 Tf 20 700 Td (%s) Tj ET" % text.encode()),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        *more,
    )


@pytest.mark.parametrize("angle", [0, 90, 180, 270])
@pytest.mark.parametrize("is_drawn_turned", [False, True], ids=["rotate", "drawn"])
def test_lines_end_where_they_end_on_paper_however_a_page_is_turned(tmp_path: Path, angle: int, is_drawn_turned: bool) -> None:
    data = io.BytesIO()
    canvas = Canvas(data, pagesize=(600, 600))
    canvas.translate(300, 300)
    canvas.rotate(angle)
    canvas.translate(-300, -300)
    for row, line in enumerate(TABLE):
        canvas.drawString(100, 500 - 18 * row, line)
    canvas.drawString(560, 300, "beyond the paper")
    canvas.save()
    document = pypdfium2.PdfDocument(data.getvalue())
    if not is_drawn_turned:
        document[0].set_rotation(angle)  # and the text stands upright then
    document[0].set_cropbox(50, 50, 550, 550)
    document.save(tmp_path / "a.pdf")
    document.close()
    lines = read_pdf(tmp_path / "a.pdf", "a.pdf")[0][0].text.splitlines()
    # Lines that go down the paper come in PDFium's order, which begins on the left.
    expected = TABLE[::-1] if is_drawn_turned and angle == 270 else TABLE
    assert [line.strip() for line in lines] == expected


def test_an_inherited_turn_and_an_offset_box_are_read_alike(tmp_path: Path) -> None:
    lines = b"".join(b"1 0 0 1 %d %d Tm (%s) Tj\n" % (-900, -350 - 18 * row, line.encode()) for row, line in enumerate(TABLE))
    turned = b"".join(b"0 1 -1 0 %d %d Tm (%s) Tj\n" % (-900 + 18 * row, -500, line.encode()) for row, line in enumerate(TABLE))
    for name, content in (("flat", lines), ("turned", turned)):
        write(
            tmp_path / f"{name}.pdf",
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1/Rotate 90/MediaBox[-1000 -600 -400 -200]>>",
            b"<</Type/Page/Parent 2 0 R/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
            build_stream(b"BT /F 12 Tf %s 1 0 0 1 0 0 Tm (beyond the paper) Tj ET" % content),
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        )
        text = read_pdf(tmp_path / f"{name}.pdf", "a.pdf")[0][0].text
        expected = TABLE[::-1] if name == "flat" else TABLE  # on a page that is turned these lines go down
        assert [line.strip() for line in text.splitlines()] == expected, name


def test_letters_that_are_set_one_by_one_are_words_and_cells_of_a_row_are_apart(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for column, cell in enumerate(("U.S.", "11,036", "10,843")):
        x = 72 + 150 * column
        for char in cell:
            canvas.drawString(x, 700, char)
            x += canvas.stringWidth(char)
    canvas.drawString(72, 680, "International")
    canvas.save()
    assert read_pdf(tmp_path / "a.pdf", "a.pdf")[0][0].text.split() == ["U.S.", "11,036", "10,843", "International"]


def test_what_was_filled_in_and_ticked_stands_beside_its_label(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"), pagesize=(600, 800))
    canvas.setFont("Helvetica", 8)
    canvas.drawString(20, 750, LONG)
    form = canvas.acroForm
    for row, (label, value) in enumerate((("Applicant:", "Marlene Quistgaard"), ("Empty:", ""))):
        canvas.drawString(60, 700 - 30 * row, label)
        form.textfield(name=label, value=value, x=150, y=695 - 30 * row, width=200, height=18)
    canvas.drawString(60, 625, "Roof:")
    form.choice(name="roof", value="Mansard", options=["Gable", "Mansard"], x=150, y=620, width=100, height=18)
    canvas.drawString(60, 600, "Remarks")
    form.textfield(name="remarks", value="under the eaves", x=50, y=570, width=300, height=20)
    canvas.drawString(60, 545, "Code:")
    form.textfield(name="code", value="hunter2", x=150, y=540, width=100, height=18, fieldFlags="password")
    for x, label, is_checked in ((60, "Listed", True), (160, "Vacant", False)):
        form.checkbox(name=label, checked=is_checked, x=x, y=500, size=12)
        canvas.drawString(x + 18, 503, label)
    form.textfield(name="far", value="beyond the paper", x=700, y=500, width=100, height=18)
    canvas.save()
    text = read_pdf(tmp_path / "a.pdf", "a.pdf")[0][0].text
    assert [" ".join(line.split()) for line in text.splitlines()][1:] == [
        "Applicant: Marlene Quistgaard",
        "Empty:",
        "Roof: Mansard",
        "Remarks under the eaves",
        "Code:",
        "[x] Listed [ ] Vacant",
    ]


def test_visible_notes_end_the_page_and_hidden_ones_are_left_out(tmp_path: Path) -> None:
    notes = b"".join(
        b"<</Type/Annot/Subtype/%s/Rect[%s]/F %d/Contents(%s)>>" % note
        for note in (
            (b"FreeText", b"50 500 200 550", 4, b"Checked by Hartwig"),
            (b"Text", b"50 400 70 420", 4, b"see the second annex"),
            (b"Text", b"50 400 70 420", 2, b"hidden"),
            (b"Text", b"50 400 70 420", 32, b"not viewed"),
            (b"Text", b"900 400 920 420", 4, b"beyond the paper"),
            (b"Popup", b"50 400 70 420", 4, b"again"),
        )
    )
    (page,), problems = read(write_noted_page(tmp_path / "a.pdf", notes))
    assert (page.text, problems) == (f"{LONG}\nChecked by Hartwig\nsee the second annex", [])


@pytest.mark.parametrize("seen", [LONG + " PAID 4 March", ""], ids=["more", "nothing"])
def test_a_stamp_without_text_is_read_by_ocr(tmp_path: Path, recognised: list[str], seen: str) -> None:
    path = write_noted_page(tmp_path / "a.pdf", b"<</Type/Annot/Subtype/Stamp/Rect[50 500 200 550]/F 4>>")
    recognised.append(seen)
    (page,), (problem,) = read(path)
    assert (page.text, page.text_source) == ((seen, "ocr") if seen else (LONG.strip(), "text_layer"))
    outcome = "OCR has read the page instead." if seen else "OCR finds no more, so it is kept."
    assert (problem.kind, problem.reason) == ("doubtful_page", f"Its text layer lacks a stamp or a signature. {outcome}")


def write_mapped_page(path: Path, targets: dict[str, int], text: str) -> Path:
    """A page whose font says that some letters stand for other characters."""
    lines = b"".join(b"<%02x> <%04x>\n" % (ord(char), target) for char, target in targets.items())
    to_unicode = b"begincmap\n1 begincodespacerange\n<00> <ff>\nendcodespacerange\n%d beginbfchar\n%sendbfchar\nendcmap"
    path = write_noted_page(path, b"", text)
    font = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/ToUnicode 6 0 R>>"
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>"
    content = build_stream(b"BT /F 8 Tf 20 700 Td (%s) Tj ET" % text.encode())
    kids = b"<</Type/Pages/Kids[3 0 R]/Count 1>>"
    return write(
        path, b"<</Type/Catalog/Pages 2 0 R>>", kids, page, content, font, build_stream(to_unicode % (len(targets), lines))
    )


@pytest.mark.parametrize("target", [0xF630, 0x11, 0xFFFD, 0x85, 0], ids=["private use", "control", "replacement", "C1", "NUL"])
def test_a_layer_that_lost_its_figures_is_read_by_ocr(tmp_path: Path, recognised: list[str], target: int) -> None:
    text = LONG + "It was 4711 million in 2023 and 3980 million in 2022."
    path = write_mapped_page(tmp_path / "a.pdf", dict.fromkeys("0123456789", target), text)
    recognised.append(text[: len(text) * 2 // 3])  # less, but what it holds can be read
    (page,), (problem,) = read(path)
    assert (page.text_source, recognised) == ("ocr", [])
    assert "characters without a letter" in problem.reason
    (kept,), (problem,) = read(path, ocr="off")
    assert kept.text_source == "text_layer"
    assert problem.kind == "doubtful_page"
    assert "It is kept: corpus.ocr is off" in problem.reason


def test_bullets_and_marks_of_private_use_raise_no_doubt(tmp_path: Path, recognised: list[str]) -> None:
    text = "~ one ~ two ~Three ~Four x^ y^" + LONG
    (page,), problems = read(write_mapped_page(tmp_path / "a.pdf", {"~": 0xF0B7, "^": 0xF8E8}, text))
    assert (page.text.count("\uf0b7"), page.text_source, problems) == (4, "text_layer", [])


def draw_page(path: Path, picture: tuple[float, float, float, float], lines: list[tuple[float, str]], size: float = 8) -> Path:
    canvas = Canvas(str(path), pagesize=(600, 800))
    canvas.drawImage(ImageReader(Image.new("RGB", (8, 6), "grey")), *picture)
    canvas.setFont("Helvetica", size)
    for y, line in lines:
        canvas.drawString(20, y, line)
    canvas.save()
    return path


@pytest.mark.parametrize(
    ("picture", "lines", "is_doubtful"),
    [
        pytest.param((60, 400, 480, 200), [(20, LONG)], True, id="scan with a stamp below"),
        pytest.param((0, 0, 600, 800), [(20, LONG), (780, LONG)], True, id="scan with stamps on it"),
        pytest.param((0, 0, 600, 800), [(700 - 14 * row, LONG) for row in range(20)], False, id="scan with its text"),
        pytest.param((0, 0, 600, 800), [(700 - 60 * row, LONG[:40]) for row in range(11)], False, id="background"),
        pytest.param((60, 700, 60, 60), [(20, LONG)], False, id="logo"),
        pytest.param((60, 400, 480, 300), [(380 - 12 * row, LONG) for row in range(25)], False, id="photograph in a text"),
    ],
)
def test_pictures_that_the_layer_does_not_explain_are_read_by_ocr(
    tmp_path: Path,
    recognised: list[str],
    picture: tuple[float, float, float, float],
    lines: list[tuple[float, str]],
    is_doubtful: bool,
) -> None:
    path = draw_page(tmp_path / "a.pdf", picture, lines)
    seen = "\n".join(["Delivery note number 80341", *(line for _, line in lines)])
    recognised.append(seen)
    (page,), problems = read(path)
    assert (page.text_source == "ocr", len(problems), len(recognised)) == (is_doubtful, is_doubtful, not is_doubtful)


def test_a_picture_within_a_form_counts_with_the_form(tmp_path: Path, recognised: list[str]) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"), pagesize=(600, 800))
    canvas.beginForm("scan", 0, 0, 600, 800)
    canvas.drawImage(ImageReader(Image.new("RGB", (8, 6), "grey")), 0, 0, 600, 800)
    canvas.endForm()
    canvas.doForm("scan")
    canvas.setFont("Helvetica", 8)
    canvas.drawString(20, 20, LONG)
    canvas.save()
    recognised.append(LONG * 2)
    (page,), _ = read(tmp_path / "a.pdf")
    assert page.text_source == "ocr"


def test_files_within_a_document_are_named(tmp_path: Path) -> None:
    document = pypdfium2.PdfDocument(write_noted_page(tmp_path / "a.pdf", b"").read_bytes())
    for number in range(103):
        document.new_attachment(f"tender{number:03d}.pdf").set_data(b"data")
    document.save(tmp_path / "b.pdf")
    document.close()
    _, problems = read(tmp_path / "b.pdf")
    assert {(problem.place, problem.kind) for problem in problems} == {(str(tmp_path / "b.pdf"), "attachment")}
    assert "holds the file 'tender007.pdf', not read" in problems[7].reason
    assert (len(problems), problems[-1].reason.partition(",")[0]) == (101, "holds 3 more files")
    assert read_pdf(tmp_path / "b.pdf", "b.pdf", first_page=2)[1] == []  # a part of it names them once


def test_a_file_that_is_pinned_to_a_page_is_named(tmp_path: Path) -> None:
    note = b"<</Type/Annot/Subtype/FileAttachment/Rect[50 500 70 520]/FS 6 0 R>>"
    file = b"<</Type/Filespec/F(parts\x1b[2J.xlsx)/EF<</F 7 0 R>>>>"
    path = write_noted_page(tmp_path / "a.pdf", note, LONG, b"", file, build_stream(b"data", b"/Type/EmbeddedFile"))
    (page,), (problem,) = read(path)
    assert (page.text, problem.kind) == (LONG.strip(), "attachment")
    assert r"the file 'parts\x1b[2J.xlsx'" in problem.reason
