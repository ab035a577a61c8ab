import dataclasses
from html.parser import HTMLParser

import pytest
from evaluation_cases import CONTEXT, build_comparison
from factories import asked_at, build_question, build_search, build_trajectory, build_turn

from drag_ray.evaluate.report.examples import Example, Examples, Outcome, Side
from drag_ray.evaluate.report.parts import build_report, write_report
from drag_ray.transcripts.thumbnails import ThumbnailStore
from drag_ray.transcripts.transcript import build_transcript
from drag_ray.types import Evidence

VOID = {"meta", "br", "img", "link", "hr", "input"}
QUESTION = build_question(id="q<1>", question="What is <b>x</b>?")


def build_side(policy, query, rank):
    return Side(policy, rank, False, build_transcript(policy, build_trajectory(build_search(query, rank), question=QUESTION)))


SIDES = (build_side("base", "<script>alert(1)</script>", None), build_side("tuned", 'a "quoted" & query', 2))
EXAMPLES = Examples((Example(QUESTION.id, QUESTION.question, Outcome.WON, SIDES),), {Outcome.WON: 7, Outcome.EVEN: 2})
PICTURES: dict[Evidence | str, str] = {Evidence("manual.pdf", 7): "data:image/jpeg;base64,AAAA"}


class Page(HTMLParser):
    """Collects text and attributes, and insists on balanced tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def html():
    comparison = build_comparison({"base": [None] * 20, "tuned": [1] * 11 + [5] * 9})
    context = dataclasses.replace(
        CONTEXT,
        commit="abc1234",
        training_curve=[{"step": 1, "loss": 2.0, "eval_loss": 2.1}, {"step": 2, "loss": 1.5}],
        stage_times={"collect": 301.5},
        machine_costs={"collect": 12.75},
        versions={"ray": "2.60.0"},
        fingerprints={"index": "a1b2c3d4"},
        config={"evaluate": {"depth": 10, "note": "<i>"}},
    )
    return build_report(comparison, EXAMPLES, context, PICTURES)


def test_the_report_holds_verdict_values_and_provenance(html):
    text = " ".join(Page(html).text.split())
    for words in (
        "tuned finds significantly more than base: 11 more first hits over 20 test questions",
        "55.0",
        "finds significantly more",
        "N = 20 questions (test), top_k = 3, depth = 10",
        "abc1234",
        "301.5",
        "Machine cost of each stage, without this evaluation collect12.75",
        "2.60.0",
        "a1b2c3d4",
        '"depth": 10',
        "absent",
        "TEST questions",
        "oracle (best for each question)",
    ):
        assert words in text


def test_text_of_models_is_escaped(html):
    page = Page(html)
    assert "script" not in page.tags
    assert "i" not in page.tags
    assert "<script>alert(1)</script>" in page.text
    assert "What is <b>x</b>?" in page.text


def test_questions_are_filtered_by_outcome_with_the_keyboard_and_without_a_script(html):
    page = Page(html)
    ids = [value for name, value in page.attributes if name == "id" and (value or "").startswith("show-")]
    assert ids == ["show-all", "show-won", "show-even"]
    assert page.attributes.count(("type", "radio")) == 3
    assert "won (1 of 7)" in page.text
    assert ".drilldown:has(#show-won:checked) .example:not(.won) { display: none; }" in html
    assert ("class", "card example won") in page.attributes


def test_what_both_policies_did_stands_side_by_side(html):
    text = " ".join(Page(html).text.split())
    left, right = text.index("<script>alert(1)</script>"), text.index('a "quoted" & query')
    assert text.index("no evidence among the first 10") < right
    assert left < right < text.index("evidence at rank 2, reward")


def test_a_page_that_was_shown_and_has_a_picture_is_seen(html):
    page = Page(html)
    pictures = [value for name, value in page.attributes if name == "alt"]
    assert pictures == ["page 7 of manual.pdf"]
    assert list(PICTURES.values()) == [value for name, value in page.attributes if name == "src"]


def test_a_policy_that_did_not_search_shows_what_the_question_finds():
    rollout = build_trajectory(build_turn(raw_text="<sea"), question=QUESTION, query_mode="expand", **asked_at(2))
    side = Side("tuned", 2, True, build_transcript("tuned", rollout))
    example = Example(QUESTION.id, QUESTION.question, Outcome.EVEN, (side, side))
    comparison = build_comparison({"base": [1, None], "tuned": [2, None]})
    text = " ".join(Page(build_report(comparison, Examples([example], {Outcome.EVEN: 1}), CONTEXT, {})).text.split())
    assert (
        "No readable action: <sea It was left at the question, which shows: other.pdf#1 manual.pdf#7 evidence other.pdf#3" in text
    )


def test_the_report_needs_nothing_beside_itself(html):
    page = Page(html)
    references = [value for name, value in page.attributes if name in ("src", "href", "xlink:href") and value]
    assert all(value.startswith(("#", "data:image/jpeg;base64,")) for value in references)
    assert "@import" not in html
    assert "url(http" not in html


def test_every_figure_is_described(html):
    page = Page(html)
    assert page.tags.count("figure") == page.tags.count("svg") == 3
    assert sum(name == "aria-label" and "chart" in (value or "") for name, value in page.attributes) == 2
    assert "prefers-color-scheme: dark" in html


def test_a_report_without_training_or_examples_is_written_without_them(tmp_path):
    path = tmp_path / "evaluate" / "report.html"
    write_report(path, build_comparison({"base": [1, None], "tuned": [2, None]}), Examples(), CONTEXT, ThumbnailStore(None))
    page = Page(path.read_text(encoding="utf-8"))
    assert page.tags.count("svg") == 2
    assert "drilldown" not in [value for name, value in page.attributes if name == "class"]
    assert "No significant difference between tuned and" in page.text


def test_validation_questions_are_marked_as_such():
    comparison = dataclasses.replace(build_comparison({"base": [1, None], "tuned": [2, None]}), split="validation")
    page = Page(build_report(comparison, Examples(), CONTEXT, {}))
    assert ("class", "card split validation") in page.attributes
    assert "VALIDATION questions: choices made on them bias these results upwards." in page.text
    assert "base, tuned on 2 validation questions" in " ".join(page.text.split())
