"""`drag-ray review` as a person uses it: in a browser, by keyboard alone, and ended by Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest
from browser import Browser, needs_browser, open_browser
from factories import build_page
from reportlab.pdfgen.canvas import Canvas
from small_index import write_index

from drag_ray import schemas
from drag_ray.corpus.verdicts import read_verdicts
from drag_ray.questions.drafts import Draft
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity, write_jsonl, write_parquet

pytestmark = needs_browser

PHONE, DESK = 390, 1280
DRAFT = Draft("q", "fact", "a.pdf", 1, "Where is the fuel kept?", "in the wings")
MARKUP = "<img src=x onerror=document.title='attacked'> Where?"
PARTS = ("wings", "tail", "rotor")
STARTED = re.compile(r"(\d+) questions: (http://127\.0\.0\.1:(\d+)/\?key=\S+)")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run with two written test questions, one of them markup, and one that a filter has left out, each on a page of a PDF."""
    documents = tmp_path / "documents"
    documents.mkdir()
    canvas = Canvas(str(documents / "a.pdf"))
    texts = [f"Page {number}: the fuel is kept in the {part}." for number, part in enumerate(PARTS, start=1)]
    for text in texts:
        canvas.drawString(72, 720, text)
        canvas.showPage()
    canvas.save()
    with StageFolder(tmp_path / "index", Identity("index", {"corpus": {"documents": str(documents)}}, {})) as folder:
        pages = [build_page(file="a.pdf", page_number=number, text=text) for number, text in enumerate(texts, start=1)]
        write_index(folder.path, pages, [])
        folder.finish({})
    drafts = [replace(DRAFT, id="plain"), replace(DRAFT, id="markup", page_number=2, question=MARKUP)]
    with StageFolder(tmp_path / "questions", Identity("questions", {}, {})) as folder:
        questions = [replace(draft.to_question(), split="test") for draft in drafts]
        write_parquet(folder.path / "questions.parquet", schemas.to_table(questions, schemas.QUESTIONS))
        left_out = replace(DRAFT, id="copied", page_number=3, reason="copied", question="Is the fuel kept in the rotor?")
        write_jsonl(folder.path / "rejected.jsonl", [asdict(left_out)])
        folder.finish({})
    return tmp_path


@pytest.fixture
def started(run_dir: Path) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """The process of the command, the address that it has printed, and its port."""
    command = [sys.executable, "-m", "drag_ray.cli.main", "review", str(run_dir), "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as process:
        assert process.stdout
        told = STARTED.search(process.stdout.readline())
        assert told
        assert told[1] == "3"
        process.stdout.readline()
        yield process, told[2], int(told[3])
        process.kill()


def show(browser: Browser, number: int) -> str:
    """Wait until the question with this number is shown, and return it."""
    browser.wait_for(f"document.getElementById('place').textContent === 'Question {number} of 3'")
    return browser.evaluate("document.getElementById('question').textContent")


def test_a_person_keeps_edits_and_drops_by_keyboard_and_finds_it_again(
    started: tuple[subprocess.Popen[str], str, int], run_dir: Path
) -> None:
    process, address, port = started
    listening = {found.laddr for found in psutil.Process(process.pid).net_connections() if found.status == psutil.CONN_LISTEN}
    assert listening == {("127.0.0.1", port)}
    said = {"Is the fuel kept in the rotor?": "d", "Where is the fuel kept?": "k", MARKUP: "e"}
    with open_browser() as browser:
        browser.open(address, DESK)
        assert browser.evaluate("location.search") == ""
        for number in (1, 2, 3):
            key = said.pop(show(browser, number))
            browser.wait_for("[...document.images].every(one => one.complete && one.naturalWidth > 500)")
            browser.press(key)
            if key == "e":
                browser.wait_for("document.activeElement.id === 'new-question'")
                browser.press("a", control=True)
                browser.write("Where is the fuel of the tail?")
                browser.press("Enter", control=True)
            browser.wait_for(f"document.getElementById('seen').value === {number}")
        assert not said
        assert "agree on 3 (100%)" in browser.evaluate("document.getElementById('summary').textContent")
        browser.press("ArrowLeft")
        before = show(browser, 2)
        browser.open(address.partition("?")[0], PHONE)
        show(browser, 1)
        browser.press("ArrowRight")
        assert show(browser, 2) == before
        assert browser.evaluate("document.documentElement.scrollWidth") <= PHONE
        assert browser.evaluate("document.title") == "Review of questions"
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert (process.returncode, "3 of 3 seen" in rest) == (0, True)
    verdicts = {
        id: (verdict.verdict, verdict.question) for id, verdict in read_verdicts(run_dir / "review/verdicts.jsonl").items()
    }
    assert verdicts == {"plain": ("keep", ""), "copied": ("drop", ""), "markup": ("edit", "Where is the fuel of the tail?")}
