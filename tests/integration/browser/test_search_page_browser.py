"""The page at `/` of an endpoint as a person uses it: in a browser, by keyboard alone, on a desk and on a phone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, needs_browser, open_browser
from picture_index import write_pictures
from PIL import Image
from serve_cases import Served
from small_index import write_index

from drag_ray.corpus.image_store import ImageStore
from drag_ray.engine.generate import Request
from drag_ray.feedback.config import FeedbackConfig
from drag_ray.feedback.events import Mark, ShownSearch
from drag_ray.feedback.log import make_secret, read_events
from drag_ray.search.searcher import Searcher
from drag_ray.serve.config import ServedRerankConfig
from drag_ray.serve.search.feedback_service import FeedbackService
from drag_ray.serve.search.retrieval import open_retrieval
from drag_ray.types import Page

pytestmark = needs_browser

PHONE, DESK = 390, 1280
KEY = "a-key-of-a-test-alone"
MARKUP = "<img src=x onerror=document.title='attacked'><script>document.title='attacked'</script>"


@pytest.fixture
def served(tmp_path: Path) -> Served:
    """An endpoint that takes feedback, over a page with a picture and one whose name and text are markup."""
    key = ImageStore(tmp_path / "page_images").write(Image.new("RGB", (1240, 1754), "white"))
    pages = [
        Page("a.pdf", 3, 9, "rotor rotor blade", image=key),
        Page(f"{MARKUP.replace('/', ' ')}.txt", 1, 1, f"rotor {MARKUP} " * 9),
    ]
    write_index(tmp_path, pages, [])
    make_secret(tmp_path / "feedback")
    feedback = FeedbackService(tmp_path / "feedback", FeedbackConfig(enabled=True))
    return Served(Searcher(tmp_path / "search_index"), tmp_path, reply, feedback=feedback)


def reply(request: Request) -> str:
    asked = len(request.messages) > 3
    return f"<think>{MARKUP}</think>" + (f"<answer>{MARKUP} <cite>a.pdf#3</cite></answer>" if asked else "<search>rotor</search>")


@pytest.fixture
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


def press(browser: Browser, *keys: str) -> None:
    for key in keys:
        browser.press(key)


def test_a_person_searches_opens_and_marks_pages_by_keyboard(served: Served, browser: Browser, tmp_path: Path) -> None:
    with served.listen(KEY) as address:
        browser.open(address, DESK)
        browser.wait_for("document.activeElement.id === 'key'")
        browser.write("not-the-key-of-this-endpoint")
        press(browser, "Enter")
        browser.wait_for("document.activeElement.id === 'question'")
        browser.write("rotor speed")
        press(browser, "Enter")
        browser.wait_for("document.getElementById('problem').textContent.includes('needs a key')")
        browser.wait_for("document.activeElement.id === 'key'")
        browser.write(KEY)
        press(browser, "Enter")
        browser.wait_for("document.activeElement.id === 'question'")
        press(browser, "Enter")
        browser.wait_for("document.querySelectorAll('#pages li').length === 2")
        browser.wait_for("document.querySelector('#pages img').naturalWidth === 226")
        press(browser, "Tab", "Tab", "Tab")
        browser.wait_for("document.activeElement.textContent === '1. a.pdf, page 3'")
        press(browser, "Enter")
        browser.wait_for("document.getElementById('reader').open && document.getElementById('picture').naturalWidth > 1000")
        press(browser, "Escape")
        browser.wait_for("!document.getElementById('reader').open")
        press(browser, "Tab", "Enter")
        browser.wait_for("document.activeElement.getAttribute('aria-pressed') === 'true'")
        press(browser, "Tab", "Tab", "Tab", "Tab", "Enter")
        browser.wait_for("document.activeElement.getAttribute('aria-pressed') === 'true'")
        assert browser.evaluate("document.title") == "Search"
        assert KEY not in browser.evaluate("document.documentElement.outerHTML + document.cookie + location.href")
    events = list(read_events(tmp_path / "feedback"))
    [search] = [event for event in events if isinstance(event, ShownSearch)]
    marks = [(event.action, event.rank) for event in events if isinstance(event, Mark)]
    assert search.session
    assert marks == [("opened", 1), ("right", 1), ("wrong", 2)]


def test_a_question_is_asked_on_a_phone_and_its_turns_are_shown_as_text(served: Served, browser: Browser) -> None:
    with served.listen() as address:
        browser.open(address, PHONE)
        browser.wait_for("document.activeElement.id === 'question'")
        browser.write("rotor speed")
        press(browser, "Tab", "Tab", "Enter")
        browser.wait_for("document.getElementById('status').textContent.includes('ended by answer')")
        assert browser.evaluate("document.querySelectorAll('#turns li').length") == 2
        assert browser.evaluate("document.getElementById('answer').textContent").startswith(MARKUP)
        browser.wait_for("document.querySelectorAll('#pages li').length === 1")
        assert MARKUP in browser.evaluate("document.getElementById('turns').textContent")
        assert browser.evaluate("document.documentElement.scrollWidth") <= PHONE
        assert browser.evaluate("document.title") == "Search"
        assert browser.evaluate("document.querySelectorAll('script').length") == 1


CHOOSE_LIME = """(async () => {
  const canvas = Object.assign(document.createElement("canvas"), {width: 60, height: 60}), pen = canvas.getContext("2d");
  pen.fillStyle = "lime";
  pen.fillRect(0, 0, 60, 60);
  pen.fillStyle = "gray";
  pen.fillRect(5, 0, 35, 30);
  const files = new DataTransfer();
  files.items.add(new File([await new Promise(take => canvas.toBlob(take))], "lime.png", {type: "image/png"}));
  document.activeElement.files = files.files;
  document.activeElement.dispatchEvent(new Event("change", {bubbles: true}));
})()"""


def test_a_picture_is_searched_with_on_a_phone_and_what_cannot_be_asked_of_it_is_said(tmp_path: Path, browser: Browser) -> None:
    index_dir = write_pictures(tmp_path / "index", file="{}.pdf")
    searcher = Searcher(index_dir / "search_index")
    retrieval = open_retrieval(searcher, index_dir / "vectors", "bm25", ServedRerankConfig())
    with Served(searcher, tmp_path, reply, retrieval).listen() as address:
        browser.open(address, PHONE)
        browser.wait_for("document.activeElement.id === 'question'")
        assert browser.evaluate("document.documentElement.scrollWidth") <= PHONE
        press(browser, "Enter")  # neither words nor a picture
        assert not browser.evaluate("document.getElementById('status').textContent")
        press(browser, "Tab")
        browser.wait_for("document.activeElement.labels[0].textContent.includes('picture')")
        browser.evaluate(CHOOSE_LIME)
        press(browser, "Tab", "Enter")
        browser.wait_for("document.querySelectorAll('#pages li').length === 6")
        assert browser.evaluate("document.querySelector('#pages h3').textContent") == "1. 3.pdf, page 3"
        assert browser.evaluate("document.documentElement.scrollWidth") <= PHONE
        press(browser, "Tab", "Enter")
        browser.wait_for("document.getElementById('problem').textContent.includes('read only text')")
