import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from drag_ray.corpus.readers import ocr
from drag_ray.errors import DataError

LINES = ("Rotor speed limit: 340 rpm", "Fuel pressure 2.5 bar", "Check the oil filter")


def draw_page(lines=LINES):
    page = Image.new("RGB", (480, 300), "white")
    drawing = ImageDraw.Draw(page)
    for number, line in enumerate(lines):
        drawing.text((20, 30 + 80 * number), line, fill="black", font=ImageFont.load_default(size=28))
    return page


@pytest.mark.seconds
def test_drawn_text_is_read_line_by_line():
    assert ocr.recognise(draw_page()).split() == " ".join(LINES).split()


@pytest.mark.seconds
def test_a_page_that_stands_on_its_head_is_turned():
    assert ocr.recognise(draw_page(LINES[:1]).rotate(180)) == LINES[0]


@pytest.mark.seconds
def test_a_blank_page_has_no_text():
    assert ocr.recognise(Image.new("RGB", (200, 200), "white")) == ""


def test_boxes_side_by_side_are_one_line():
    boxes = np.array([[[x, y], [x + 90, y], [x + 90, y + 20], [x, y + 20]] for x, y in ((300, 0), (0, 4), (0, 40), (300, 55))])
    assert ocr._join_lines(boxes, ("right", "left", "next", "last")) == "left right\nnext\nlast"


def test_an_image_at_which_the_engine_fails_is_named(monkeypatch):
    import cv2

    def fail(image):
        raise cv2.error("out of memory")

    monkeypatch.setattr(ocr, "_load_engine", lambda: fail)
    with pytest.raises(DataError, match="OCR failed on an image of 30 x 20 pixels"):
        ocr.recognise(Image.new("RGB", (30, 20)))
