"""Pages of PDFs: their text layer, OCR, and their pictures."""

import io
from pathlib import Path

import matplotlib
import numpy as np
import pypdfium2
import pytest
from PIL import Image, ImageDraw, ImageFont
from reportlab.lib import pdfencrypt
from reportlab.lib.utils import ImageReader
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.readers import ocr
from drag_ray.corpus.readers.page_reader import PageReader
from drag_ray.corpus.readers.pdf import read_pdf
from drag_ray.corpus.text import clean_text
from drag_ray.errors import DataError


def write_pdf(path: Path, texts: list[str], password: str = "") -> Path:
    buffer = io.BytesIO()
    canvas = Canvas(buffer, encrypt=pdfencrypt.StandardEncryption(password) if password else None)
    for text in texts:
        canvas.drawString(72, 700, text)
        canvas.showPage()
    canvas.save()
    path.write_bytes(buffer.getvalue())
    return path


def test_pages_are_numbered_from_one_carry_their_text_and_equal_ones_share_an_image(tmp_path):
    pages = read_pdf(write_pdf(tmp_path / "a.pdf", ["first rotor", "", "third wing"]), "sub/a.pdf")[0]
    assert [(page.file, page.page_number, page.total_pages, page.text) for page in pages] == [
        ("sub/a.pdf", 1, 3, "first rotor"),
        ("sub/a.pdf", 2, 3, ""),
        ("sub/a.pdf", 3, 3, "third wing"),
    ]
    path = write_pdf(tmp_path / "a.pdf", ["same", "same", "other"])
    first, second, third = read_with(tmp_path, path, page_images=True)
    assert first.image == second.image != third.image


def cut_pdf(path):
    write_pdf(path, ["text"] * 3)
    path.write_bytes(path.read_bytes()[:200])


def write_no_pages(path):
    document = pypdfium2.PdfDocument.new()
    document.save(path)
    document.close()


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (lambda path: None, r"a\.pdf: no such file"),
        (cut_pdf, r"a\.pdf: is not a PDF, or is truncated"),
        (lambda path: write_pdf(path, ["secret"], password="open sesame"), r"is encrypted.*qpdf"),
        (write_no_pages, r"a\.pdf: (a PDF without pages|is damaged, or has no pages|is not a PDF)"),
    ],
)
def test_a_pdf_that_cannot_be_read_is_refused_with_the_reason(tmp_path, write, problem):
    write(tmp_path / "a.pdf")
    with pytest.raises(DataError, match=problem):
        read_pdf(tmp_path / "a.pdf", "a.pdf")


def test_text_is_cleaned_and_boxes_side_by_side_are_one_line():
    assert clean_text("a\0b\ud800c\r\nd\re\ufffe") == "abc\nd\ne"
    boxes = np.array([[[x, y], [x + 90, y], [x + 90, y + 20], [x, y + 20]] for x, y in ((300, 0), (0, 4), (0, 40), (300, 55))])
    rows = ocr.group_rows(boxes, ("right", "left", "next", "last"))
    assert [[box.text for box in row] for row in rows] == [["left", "right"], ["next"], ["last"]]


@pytest.mark.parametrize("mark", ["\x02", "\ufffe", "\ufffe\r\n"])
def test_a_word_broken_at_a_line_end_is_joined_only_if_the_document_knows_it(mark):
    assert clean_text(f"The heli{mark}copter is cloud{mark}based", {"helicopter", "cloud"}) == "The helicopter is cloud-based"


def test_a_password_that_only_guards_changes_is_no_obstacle(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"), encrypt=pdfencrypt.StandardEncryption("", ownerPassword="owner", canModify=0))
    canvas.drawString(72, 700, "readable")
    canvas.save()
    assert read_pdf(tmp_path / "a.pdf", "a.pdf")[0][0].text == "readable"


@pytest.mark.seconds
def test_a_page_with_100_000_words_is_read_whole(tmp_path):
    words = [f"w{number:06d}" for number in range(100_000)]
    canvas = Canvas(str(tmp_path / "a.pdf"), pagesize=(5000, 5000))
    text = canvas.beginText(10, 4990)
    text.setFont("Courier", 4, leading=4.5)
    for start in range(0, len(words), 100):
        text.textLine(" ".join(words[start : start + 100]))
    canvas.drawText(text)
    canvas.save()
    (page,), _ = read_pdf(tmp_path / "a.pdf", "a.pdf")
    assert page.text.split() == words


def test_right_to_left_text_comes_in_reading_order(tmp_path):
    pdfmetrics.registerFont(TTFont("DejaVu", str(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf")))
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.setFont("DejaVu", 14)
    lines = ["שלום עולם זהו דף בדיקה", "مرحبا بالعالم"]
    for height, line in zip((700, 650), lines, strict=True):
        canvas.drawString(72, height, line[::-1])  # drawn as seen, from left to right
    canvas.save()
    assert read_pdf(tmp_path / "a.pdf", "a.pdf")[0][0].text.splitlines() == lines


def test_a_page_that_cannot_be_read_is_set_aside_and_the_others_are_kept(tmp_path):
    path = write_pdf(tmp_path / "a.pdf", ["one", "two", "three"])
    data = path.read_bytes()
    pages = [start for start in range(len(data)) if data.startswith(b"/Type /Page\n", start)]
    path.write_bytes(data[: pages[1]] + b"/Type /Pome\n" + data[pages[1] + 12 :])
    found, problems = read_pdf(path, "a.pdf")
    assert [(page.page_number, page.total_pages, page.text) for page in found] == [(1, 3, "one"), (3, 3, "three")]
    assert [problem.place for problem in problems] == [f"{path}, page 2"]


@pytest.fixture
def seen(monkeypatch):
    """Sizes of the pictures that OCR is asked about; it answers each with the same word."""
    sizes = []

    def recognise(image):
        sizes.append(image.size)
        return "seen"

    monkeypatch.setattr(ocr, "recognise", recognise)
    return sizes


def read_with(tmp_path, path, **options):
    return read_pdf(path, "a.pdf", PageReader(CorpusConfig(**options), ImageStore(tmp_path / "page_images")))[0]


def write_mixed_pdf(path):
    """Pages: long text; short text alone; short text over a picture; a picture alone; nothing; a drawing; glyphs unknown."""
    canvas = Canvas(str(path))
    picture = ImageReader(Image.new("RGB", (80, 60), "grey"))
    for text, drawn in (("long text " * 20, True), ("short", False), ("Page 3 of 7", True), ("", True), ("", False)):
        if text:
            canvas.setFont("Helvetica", 5)  # small, as what lies beyond the paper is not read
            canvas.drawString(10, 700, text)
        if drawn:
            canvas.drawImage(picture, 100, 100)
        canvas.showPage()
    canvas.line(10, 10, 200, 200)
    canvas.showPage()
    canvas.drawString(10, 700, "... ---")
    canvas.showPage()
    canvas.save()
    return path


@pytest.mark.parametrize(
    ("mode", "by_ocr"), [("off", set()), ("auto", {4, 6, 7}), ("always", {1, 2, 3, 4, 6, 7})], ids=["off", "auto", "always"]
)
def test_ocr_is_decided_page_by_page_and_recorded(tmp_path, seen, mode, by_ocr):
    pages = read_with(tmp_path, write_mixed_pdf(tmp_path / "a.pdf"), ocr=mode)
    assert {page.page_number for page in pages if page.text_source == "ocr"} == by_ocr
    assert all((page.text == "seen") == (page.text_source == "ocr") for page in pages)
    # Page 3 shows more than its few words, but the words that OCR finds there are not more.
    assert len(seen) == {"off": 0, "auto": 4, "always": 6}[mode]
    assert pages[4].text == ""
    assert pages[2].text == ("seen" if mode == "always" else "Page 3 of 7")


def test_the_threshold_counts_letters_and_digits(tmp_path, seen, monkeypatch):
    path = write_mixed_pdf(tmp_path / "a.pdf")
    for threshold, num_seen in ((161, 5), (160, 5 + 4)):
        monkeypatch.setattr("drag_ray.corpus.readers.pdf._FEW_LETTERS", threshold)
        read_with(tmp_path, path)
        assert len(seen) == num_seen


def test_a_page_at_which_ocr_fails_keeps_its_text_layer(tmp_path, monkeypatch):
    def recognise(image):
        raise DataError("OCR failed on an image.")

    monkeypatch.setattr(ocr, "recognise", recognise)
    path = write_mixed_pdf(tmp_path / "a.pdf")
    pages, problems = read_pdf(path, "a.pdf", PageReader(CorpusConfig(), ImageStore(tmp_path)))
    assert (len(pages), pages[2].text, len(problems)) == (7, "Page 3 of 7", 4)
    assert problems[0].reason == "OCR failed on an image. Its text layer is kept."


def test_page_images_are_rendered_at_the_resolution_and_within_the_budget(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"), pagesize=(720, 360))
    canvas.setFillColorRGB(1, 0, 0)
    canvas.rect(0, 0, 360, 360, fill=1, stroke=0)
    canvas.save()
    images = ImageStore(tmp_path / "page_images")
    (page,) = read_with(tmp_path, tmp_path / "a.pdf", page_images=True, page_image_dpi=72, ocr="off")
    picture = images.open(page.image)
    assert picture.size == (720, 360)
    assert picture.getpixel((100, 100)) == pytest.approx((255, 0, 0), abs=4)
    assert picture.getpixel((600, 100)) == pytest.approx((255, 255, 255), abs=4)
    (page,) = read_with(tmp_path, tmp_path / "a.pdf", page_images=True, page_image_max_pixels=20_000, ocr="off")
    width, height = images.open(page.image).size
    assert 19_000 < width * height <= 20_000
    assert width / height == pytest.approx(2, rel=0.02)


LINES = ("Rotor speed limit: 340 rpm", "Fuel pressure 2.5 bar", "Check the oil filter")


def draw_lines(lines=LINES):
    page = Image.new("RGB", (480, 300), "white")
    drawing = ImageDraw.Draw(page)
    for number, line in enumerate(lines):
        drawing.text((20, 30 + 80 * number), line, fill="black", font=ImageFont.load_default(size=28))
    return page


@pytest.mark.seconds
def test_drawn_text_is_read_line_by_line_whatever_its_side_and_a_blank_page_has_none():
    assert ocr.recognise(draw_lines()).split() == " ".join(LINES).split()
    assert ocr.recognise(draw_lines(LINES[:1]).rotate(180)) == LINES[0]
    assert ocr.recognise(Image.new("RGB", (200, 200), "white")) == ""


def test_an_image_at_which_the_engine_fails_is_named(monkeypatch):
    import cv2

    def fail(image):
        raise cv2.error("out of memory")

    monkeypatch.setattr(ocr, "_load_engine", lambda: fail)
    with pytest.raises(DataError, match="OCR failed on an image of 30 x 20 pixels"):
        ocr.recognise(Image.new("RGB", (30, 20)))
