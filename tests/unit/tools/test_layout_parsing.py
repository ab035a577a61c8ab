"""Text and boxes of page pictures, read by the real OCR engine."""

import json
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont
from tool_cases import Pages

from drag_ray.corpus.image_store import DIR_NAME, ImageStore
from drag_ray.corpus.readers.ocr import TextBox
from drag_ray.errors import DataError, ToolError
from drag_ray.recipes.opensearch_vl import layout_parsing
from drag_ray.recipes.opensearch_vl.layout_parsing import TOOL
from drag_ray.tools.workspace import Workspace

CELLS = {(40, 60): "Rotor speed", (520, 60): "340 rpm", (40, 260): "Fuel pressure", (520, 260): "2.5 bar"}


def draw_table(scale: int = 1) -> Image.Image:
    image = Image.new("RGB", (800 * scale, 400 * scale), "white")
    drawing = ImageDraw.Draw(image)
    for (left, top), text in CELLS.items():
        drawing.text((left * scale, top * scale), text, fill="black", font=ImageFont.load_default(size=32 * scale))
    return image


def parse(folder: Path, *images: Image.Image | str, page: int = 1) -> str:
    store = ImageStore(folder / DIR_NAME)
    keys = [image if isinstance(image, str) else store.write(image) for image in images]
    workspace = Workspace(Pages(*["text"] * len(keys), index_dir=folder / "search_index", images=keys))
    return TOOL.run(TOOL.read_arguments(json.dumps({"file": "manual.pdf", "page": page})), workspace).text


@pytest.mark.seconds
@pytest.mark.parametrize("scale", [1, 4])
def test_cells_side_by_side_are_a_row_with_their_boxes_whatever_the_pixels(tmp_path: Path, scale: int) -> None:
    heading, *rows = parse(tmp_path, draw_table(scale)).splitlines()
    assert heading.startswith("manual.pdf#1, boxes are")
    cells = [[cell.partition(" ") for cell in row.split(" | ")] for row in rows]
    assert [[text for _, _, text in row] for row in cells] == [["Rotor speed", "340 rpm"], ["Fuel pressure", "2.5 bar"]]
    for (left, top), box in zip(CELLS, (box for row in cells for box, _, _ in row), strict=True):
        x, y, right, bottom = map(int, box.split(","))
        assert abs(x - left / 0.8) < 20
        assert abs(y - top / 0.4) < 40
        assert x < right <= 1000
        assert y < bottom <= 1000


@pytest.mark.seconds
def test_a_blank_page_says_that_it_has_no_text(tmp_path: Path) -> None:
    assert parse(tmp_path, Image.new("RGB", (200, 200), "white")) == "manual.pdf#1: no text in its picture"


def test_a_picture_is_read_once_whoever_asks_and_the_latest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, int]] = []
    monkeypatch.setattr(layout_parsing, "_kept", {})
    monkeypatch.setattr(layout_parsing, "_NUM_KEPT", 2)

    def locate(image: Image.Image) -> list[list[TextBox]]:
        read.append(image.size)
        if image.width == 13:
            raise DataError("it cannot be read")
        return [[TextBox(str(image.width), 0, 0, 1, 1)]]

    monkeypatch.setattr(layout_parsing, "locate", locate)
    pictures = {width: Image.new("RGB", (width, 10)) for width in (10, 11, 12, 13)}
    for width in (10, 11, 10, 12, 12, 11, 10):  # a third one takes the place of the first
        assert parse(tmp_path, pictures[width]).endswith(f" {width}")
    assert [width for width, _ in read] == [10, 11, 12, 10]
    for _ in range(2):
        with pytest.raises(ToolError, match="cannot be read"):
            parse(tmp_path, pictures[13])
    assert [width for width, _ in read[4:]] == [13, 13]


def test_pages_without_a_picture_and_broken_pictures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"manual\.pdf#1 has no picture"):
        parse(tmp_path, "")
    with pytest.raises(ToolError, match="no page 9"):
        parse(tmp_path, "", page=9)
    key = ImageStore(tmp_path / DIR_NAME).write(draw_table())
    (tmp_path / DIR_NAME / key).write_bytes(b"no picture")
    for hostile in (key, "../../etc/passwd", "aa/" + "a" * 32 + ".jpg"):
        with pytest.raises(ToolError, match=r"the picture of manual\.pdf#1 cannot be read") as raised:
            parse(tmp_path, hostile)
        assert str(tmp_path) not in str(raised.value)
