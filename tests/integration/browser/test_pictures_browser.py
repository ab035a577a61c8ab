"""Pages in both colour schemes: what the documentation's pictures are taken of, and whether people can read it."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import needs_browser, open_browser
from PIL import Image, ImageStat
from serve_cases import Served
from small_run import write_small_run
from take_pictures import SCALE, SCHEMES, WIDTH, show_pages, take_pictures

from drag_ray.search.searcher import Searcher

pytestmark = needs_browser

QUESTION = "Which images are there?"
READABLE = 4.5
"""The contrast of text that WCAG 2.2 asks for (1.4.3)."""
FAINT = """
(() => {
  const read = colour => colour.match(/[0-9.]+/g).map(Number);
  const light = colour => read(colour).slice(0, 3).map(part => part / (colour.startsWith("color(") ? 1 : 255))
    .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const isSeen = element => (read(getComputedStyle(element).backgroundColor)[3] ?? 1) > 0;
  const faint = [];
  for (const element of document.querySelectorAll("body *")) {
    if (!element.checkVisibility() || ![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
    let behind = element;
    while (behind.parentElement && !isSeen(behind)) behind = behind.parentElement;
    const style = getComputedStyle(element), written = element.closest("svg") ? style.fill : style.color;
    const [low, high] = [light(written), light(getComputedStyle(behind).backgroundColor)].sort((one, other) => one - other);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < LEAST) faint.push(`${contrast.toFixed(1)}: ${element.outerHTML.slice(0, 90)}`);
  }
  return faint;
})()
""".replace("LEAST", str(READABLE))
"""Texts that stand out too little from what is behind them."""


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    write_small_run(tmp_path)
    return tmp_path / "runs" / "small"


@pytest.fixture
def address(run_dir: Path) -> Iterator[str]:
    """An endpoint of that run."""
    searcher = Searcher(run_dir / "index" / "search_index")
    with Served(searcher, run_dir, lambda request: "<search>images</search>").listen() as address:
        yield address


def test_the_pictures_of_a_run_are_taken_in_both_schemes_and_are_small(run_dir: Path, address: str, tmp_path: Path) -> None:
    (folder := tmp_path / "images").mkdir()
    take_pictures(run_dir, address, QUESTION, folder)
    names = ("report", "search", "transcript")
    assert sorted(path.stem for path in folder.iterdir()) == sorted(f"{name}-{scheme}" for name in names for scheme in SCHEMES)
    for name in names:
        light, dark = (Image.open(folder / f"{name}-{scheme}.png") for scheme in SCHEMES)
        assert light.size == dark.size
        assert light.width == WIDTH * SCALE
        [bright], [dim] = (ImageStat.Stat(picture.convert("L")).mean for picture in (light, dark))
        assert bright > 200
        assert dim < 60


def test_text_stands_out_in_both_schemes_and_is_printed_dark_on_white(run_dir: Path, address: str) -> None:
    with open_browser() as browser:
        for scheme, medium in (("light", "screen"), ("dark", "screen"), ("dark", "print")):
            browser.prefer(scheme, medium)
            for name in show_pages(browser, run_dir, address, QUESTION):
                browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
                assert browser.evaluate(FAINT) == [], (name, scheme, medium)
                with Image.open(io.BytesIO(browser.photograph())) as picture:
                    assert (picture.convert("RGB").getpixel((2, 2)) == (255, 255, 255)) == (medium == "print")
