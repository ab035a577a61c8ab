"""Screenshots for the documentation, from the finished demo and its endpoint (`make pictures`).

Each page is taken twice, as a person sees it who prefers light and one who prefers dark: docs/images/NAME-light.png and
NAME-dark.png.
"""

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

from browser import Browser, open_browser
from endpoint_process import serve_run
from PIL import Image

from drag_ray.transcripts.listing import Selection
from drag_ray.transcripts.show import write_page

IMAGES = Path(__file__).parent / "images"
CONFIG = "jobs/configs/demo.toml"
RUN_DIR = Path("runs/demo")
QUESTION = "To get a list of keys (Payment Cryptography)"
SCHEMES = ("light", "dark")
WIDTH, HEIGHT, SCALE = 1024, 832, 5 / 4
"""A window, and the dots of a picture for each of its units: text stays legible in a column of documentation."""
_COLOURS = 128
"""Of a picture: text and its edges need no more, and a file is a third as long."""


def take_pictures(run_dir: Path, url: str, question: str, images: Path) -> None:
    """Write pictures of what `show_pages` shows."""
    with open_browser() as browser:
        for scheme in SCHEMES:
            browser.prefer(scheme)
            for name in show_pages(browser, run_dir, url, question):
                _write_picture(browser.photograph(), images / f"{name}-{scheme}.png")


def show_pages(browser: Browser, run_dir: Path, url: str, question: str) -> Iterator[str]:
    """Open a run's report, the transcript that gains most, and the search page with a question; yields a name for each."""
    browser.open(run_dir / "evaluate" / "report.html", WIDTH, HEIGHT, SCALE)
    browser.wait_for("document.querySelectorAll('.verdict p').length")
    yield "report"
    with tempfile.TemporaryDirectory() as folder:
        write_page(run_dir, Selection(sort="gain", limit=1), transcript := Path(folder, "transcript.html"))
        browser.open(transcript, WIDTH, HEIGHT, SCALE)
        browser.wait_for("document.querySelectorAll('.transcript[open] .turns .evidence').length")
        yield "transcript"
    browser.open(url, WIDTH, HEIGHT, SCALE)
    browser.wait_for("document.activeElement.id === 'question'")
    browser.write(question)
    browser.press("Enter")
    browser.wait_for("document.querySelectorAll('#pages li').length")
    yield "search"


def _write_picture(png: bytes, path: Path) -> None:
    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    with serve_run({"config": CONFIG}) as endpoint:
        take_pictures(RUN_DIR, endpoint.url, QUESTION, IMAGES)
