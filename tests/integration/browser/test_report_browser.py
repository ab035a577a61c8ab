"""The report as it is seen and used in a browser, at the width of a phone and of a desk, by keyboard alone."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, needs_browser, open_browser
from evaluation_cases import CONTEXT, build_searching
from factories import build_question, build_search, build_trajectory

from drag_ray.evaluate.report.examples import Example, Examples, Outcome, Side
from drag_ray.evaluate.report.parts import build_report
from drag_ray.transcripts.transcript import build_transcript
from drag_ray.types import Evidence

pytestmark = needs_browser

PHONE, DESK = 390, 1280
LONG = "a_name_that_goes_on_and_on_without_a_space_" * 4
OUTCOMES = {Outcome.WON: 2, Outcome.LOST: 1, Outcome.EVEN: 1}
WIDE_PAGE = "data:image/svg+xml;utf8,<svg xmlns='http://www.w3.org/2000/svg' width='1600' height='900'/>"
OVERFLOWS = """
[...document.querySelectorAll("main *")].filter(element => {
  if (element.closest("svg, .scroll, pre") && !element.matches(".scroll, pre")) return false;
  const box = element.getBoundingClientRect();
  return box.width && (box.right > innerWidth + 1 || box.left < -1);
}).map(element => element.outerHTML.slice(0, 120))
"""
"""What stands out of the window and in no box of its own that can be moved."""


def build_side(policy: str, question: Any, rank: int | None) -> Side:
    searches = [build_search(f"{policy} {LONG}", rank), build_search("rotor speed limit in flight", rank)]
    return Side(policy, rank, False, build_transcript(policy, build_trajectory(*searches, question=question)))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with long names, a wide picture of a page, and questions of three outcomes."""
    examples: list[Example] = []
    for outcome, number in OUTCOMES.items():
        for place in range(number):
            question = build_question(id=f"{outcome.name}{place}{LONG}", question=f"What is {LONG} of {outcome.value}?")
            sides = (build_side("question", question, 2), build_side("base", question, 1 if outcome is Outcome.WON else None))
            examples.append(Example(question.id, question.question, outcome, sides))
    curve = [{"step": 1, "loss": 2.0, "eval_loss": 2.1}, {"step": 2, "loss": 1.5}]
    config = {"evaluate": {"depth": 10, "models": [LONG]}}
    context = dataclasses.replace(CONTEXT, commit="abc1234", training_curve=curve, stage_times={"collect": 301.5}, config=config)
    pictures: dict[Evidence | str, str] = {Evidence("manual.pdf", 7): WIDE_PAGE}
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(build_report(build_searching(), Examples(tuple(examples), OUTCOMES), context, pictures), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


def tab_to(browser: Browser, selector: str) -> None:
    """Press Tab until an element that the selector chooses has the focus, and can be seen to have it."""
    for _ in range(100):
        browser.press("Tab")
        if browser.evaluate(f"document.activeElement.matches({selector!r})"):
            break
    else:
        raise AssertionError(f"{selector}: not reached")
    assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


def count_shown(browser: Browser) -> dict[str, int]:
    """Questions that are seen, by outcome."""
    shown = {outcome: f'document.querySelectorAll(".example.{outcome.name.lower()}")' for outcome in OUTCOMES}
    counts = {name: browser.evaluate(f"[...{all}].filter(one => one.checkVisibility()).length") for name, all in shown.items()}
    return {outcome.name: count for outcome, count in counts.items()}


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_nothing_stands_out_of_the_window_folded_or_unfolded(browser: Browser, report: Path, width: int) -> None:
    browser.open(report, width)
    assert browser.evaluate("innerWidth") == width
    for unfold in ("", "document.querySelectorAll('details').forEach(one => one.open = true)"):
        browser.evaluate(unfold)
        assert browser.evaluate(OVERFLOWS) == []
        assert browser.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_questions_are_chosen_by_their_outcome_with_the_keys(browser: Browser, report: Path, width: int) -> None:
    browser.open(report, width)
    everything = {outcome.name: number for outcome, number in OUTCOMES.items()}
    assert count_shown(browser) == everything
    tab_to(browser, "#show-all")
    for outcome in OUTCOMES:
        browser.press("ArrowDown")
        assert browser.evaluate("document.activeElement.id") == f"show-{outcome.name.lower()}"
        assert count_shown(browser) == {name: number if name == outcome.name else 0 for name, number in everything.items()}
    browser.press("ArrowDown")
    assert count_shown(browser) == everything


@pytest.mark.parametrize(("width", "is_beside"), [(PHONE, False), (DESK, True)])
def test_a_question_is_unfolded_with_the_keys_and_shows_both_policies(
    browser: Browser, report: Path, width: int, is_beside: bool
) -> None:
    browser.open(report, width)
    tab_to(browser, ".example summary")
    assert not browser.evaluate("document.activeElement.parentElement.open")
    browser.press("Enter")
    assert browser.evaluate("document.activeElement.parentElement.open")
    boxes = browser.evaluate(
        "[...document.activeElement.parentElement.querySelectorAll('.side')].map(side => side.getBoundingClientRect().toJSON())"
    )
    left, right = boxes
    assert (left["top"] == right["top"] and left["right"] <= right["left"]) == is_beside
    assert (left["bottom"] <= right["top"]) != is_beside
    is_within = "[...document.querySelectorAll('.example[open] img')].map(one => one.width <= one.parentElement.clientWidth)"
    assert set(browser.evaluate(is_within)) == {True}
    browser.press(" ")
    assert not browser.evaluate("document.activeElement.parentElement.open")
