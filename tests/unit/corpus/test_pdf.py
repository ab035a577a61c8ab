import io
from pathlib import Path

import pypdfium2
import pytest
from reportlab.lib import pdfencrypt
from reportlab.pdfgen.canvas import Canvas

from drag_ray.corpus.pdf import read_pdf
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


def test_pages_are_numbered_from_one_and_carry_their_text(tmp_path):
    pages = read_pdf(write_pdf(tmp_path / "a.pdf", ["first rotor", "", "third wing"]), "sub/a.pdf")[0]
    assert [(page.file, page.page_number, page.total_pages, page.text) for page in pages] == [
        ("sub/a.pdf", 1, 3, "first rotor"),
        ("sub/a.pdf", 2, 3, ""),
        ("sub/a.pdf", 3, 3, "third wing"),
    ]


def test_a_missing_pdf_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.pdf: no such file"):
        read_pdf(tmp_path / "nowhere.pdf", "nowhere.pdf")


def test_a_truncated_pdf_is_refused(tmp_path):
    path = write_pdf(tmp_path / "a.pdf", ["text"] * 3)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"a\.pdf: is not a PDF, or is truncated"):
        read_pdf(path, "a.pdf")


def test_an_encrypted_pdf_is_refused_with_a_remedy(tmp_path):
    with pytest.raises(DataError, match=r"is encrypted.*qpdf"):
        read_pdf(write_pdf(tmp_path / "a.pdf", ["secret"], password="open sesame"), "a.pdf")


def test_a_pdf_without_pages_is_refused(tmp_path):
    document = pypdfium2.PdfDocument.new()
    document.save(tmp_path / "a.pdf")
    document.close()
    with pytest.raises(DataError, match=r"a\.pdf: (a PDF without pages|is damaged, or has no pages|is not a PDF)"):
        read_pdf(tmp_path / "a.pdf", "a.pdf")


def test_text_is_cleaned_of_nuls_surrogates_and_carriage_returns():
    assert clean_text("a\0b\ud800c\r\nd\re\ufffe") == "abc\nd\ne"


@pytest.mark.parametrize("mark", ["\x02", "\ufffe", "\ufffe\r\n"])
def test_a_word_broken_at_a_line_end_is_joined_only_if_the_document_knows_it(mark):
    assert clean_text(f"The heli{mark}copter is cloud{mark}based", {"helicopter", "cloud"}) == "The helicopter is cloud-based"
