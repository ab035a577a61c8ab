"""Questions that are learned from feedback: whose word counts, and for what."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories import build_page
from small_index import write_index

from drag_ray.cli.main import main
from drag_ray.corpus.questions import read_questions
from drag_ray.feedback.config import LearnConfig
from drag_ray.feedback.events import Action, Event, Mark, ShownSearch
from drag_ray.feedback.learn import Lessons, learn
from drag_ray.feedback.positions import MIN_VOICES, Look, PositionCurve, estimate_curve
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.appended_lines import append_lines
from drag_ray.storage.artifacts import Identity
from drag_ray.types import Evidence, Question

A, B, C = (Evidence(f"{name}.pdf", 1) for name in "abc")
QUESTION = "How fast may the rotor turn?"
NUMBERS = count()


def search(
    question: str = QUESTION, client: str = "c1", session: str = "", time: int = 0, pages: Iterable[Evidence] = (A, B, C)
) -> Any:
    return ShownSearch(f"s{next(NUMBERS)}", time, client, session, question, "", "base", tuple(pages))


def mark(of: ShownSearch, action: Action, page: Evidence | None = A, client: str = "", time: int = 0, **more: Any) -> Mark:
    rank = of.pages.index(page) + 1 if page in of.pages else 0
    return Mark(of.id, time or of.time, client or of.client, action, page, rank, **more)


def visit(action: Action, page: Evidence, client: str, **more: Any) -> list[Event]:
    asked = search(client=client, **more)
    return [asked, mark(asked, action, page)]


def join(*visits: list[Event]) -> list[Event]:
    return [event for events in visits for event in events]


def read(lessons: Lessons) -> tuple[dict[str, set[Evidence]], dict[str, str]]:
    """Evidence and reasons by question."""
    evidence = {question.question: set(question.evidence) for question in lessons.questions}
    return evidence, {left_out.question: left_out.reason for left_out in lessons.left_out}


def test_a_page_that_is_marked_right_is_evidence_however_the_question_is_spelt() -> None:
    lessons = learn(
        join(visit("right", B, "c1"), visit("right", C, "c2", question="how  fast may the ROTOR turn?")), LearnConfig()
    )
    [question] = lessons.questions
    assert normalized(question) == normalized(QUESTION)
    assert set(question.evidence) == {B, C}
    assert question.category == "feedback"


def normalized(question: Question | str) -> str:
    text = question if isinstance(question, str) else question.question
    return " ".join(text.lower().split())


def test_a_page_that_is_marked_wrong_is_no_evidence_and_one_that_is_both_is_set_aside() -> None:
    opened = [visit("opened", A, f"c{number}") for number in range(5)]
    assert read(learn(join(*opened), LearnConfig())) == ({QUESTION: {A}}, {})
    assert read(learn(join(*opened, visit("wrong", A, "x")), LearnConfig())) == ({}, {QUESTION: "marked_wrong"})
    both = learn(join(*opened, visit("wrong", A, "x"), visit("right", A, "y"), visit("right", B, "y")), LearnConfig())
    assert read(both) == ({QUESTION: {B}}, {})
    assert both.counts["pages_contradictory"] == 1


def test_a_client_who_marks_all_that_is_right_as_wrong_is_outvoted_by_two_marks_or_by_twice_the_clicks() -> None:
    harm = [visit("wrong", A, "hostile", time=number) for number in range(100)]  # one voice, whatever it sends
    marked = [visit("right", A, f"c{number}") for number in range(2)]
    assert read(learn(join(*harm, *marked), LearnConfig())) == ({QUESTION: {A}}, {})
    assert read(learn(join(*harm, *marked[:1]), LearnConfig())) == ({}, {QUESTION: "contradictory"})
    opened = [visit("opened", A, f"c{number}") for number in range(6)]
    assert read(learn(join(*harm, *opened), LearnConfig())) == ({QUESTION: {A}}, {})
    more = [visit("wrong", A, "another")]
    assert read(learn(join(*harm, *more, *opened), LearnConfig())) == ({}, {QUESTION: "marked_wrong"})
    assert read(learn(join(*harm, *opened[1:], visit("opened", A, "hostile")), LearnConfig()))[1] == {QUESTION: "marked_wrong"}


def test_the_last_word_of_a_client_is_the_one_that_counts() -> None:
    asked = search()
    events = [asked, mark(asked, "wrong", time=1), mark(asked, "right", time=2)]
    assert read(learn(events, LearnConfig())) == ({QUESTION: {A}}, {})
    assert read(learn([*events, mark(asked, "wrong", time=3)], LearnConfig())) == ({}, {QUESTION: "marked_wrong"})


def test_clicks_count_by_clients_and_by_how_many_of_those_who_looked_have_opened_the_page() -> None:
    few = [visit("opened", A, f"c{number}") for number in (1, 2, 2, 2, 2)]
    assert read(learn(join(*few), LearnConfig())) == ({}, {QUESTION: "few_voices"})
    # Three of ten is too few at the first rank, and not at the third, where one of three looks.
    others: list[list[Event]] = [[search(client=f"o{number}")] for number in range(7)]
    assert read(learn(join(*others, *(visit("opened", A, f"c{n}") for n in range(3))), LearnConfig()))[1] == {
        QUESTION: "seldom_opened"
    }
    assert read(learn(join(*others, *(visit("opened", C, f"c{n}") for n in range(3))), LearnConfig()))[0] == {QUESTION: {C}}


def test_sessions_are_voices_only_where_that_is_said() -> None:
    events = join(*(visit("opened", A, "proxy", session=f"n{number}") for number in range(3)))
    assert read(learn(events, LearnConfig())) == ({}, {QUESTION: "few_voices"})
    assert read(learn(events, LearnConfig(voices="session"))) == ({QUESTION: {A}}, {})


def test_one_client_decides_about_no_more_than_its_share_of_pages() -> None:
    flood = [visit("right", B, "hostile", question=f"question number{number}", time=number) for number in range(1000)]
    honest = visit("right", A, "honest", question="question number999", time=2000)
    lessons = learn(join(*flood, honest), LearnConfig(max_alone=5))
    assert Counter(question.evidence for question in lessons.questions) == {(B,): 5, (A,): 1}
    assert Counter(left_out.reason for left_out in lessons.left_out) == {"one_voice": 994}


def ask_in_turn(client: str) -> list[Event]:
    """Two wordings, of which the second finds it, something else, and the first again on another day."""
    first = search("rotor speed?", client, "n", pages=[A])
    second = search("What is the speed limit of the rotor", client, "n", 60, [B, C])
    other = search("What is the lunch", client, "n", 120, [C])
    late = search("rotor again", client, "n", 10_000, [A])
    return [
        first,
        second,
        other,
        late,
        mark(first, "opened", A),
        mark(second, "right", C, time=70),
        mark(other, "right", C, time=130),
    ]


def test_what_is_found_at_the_end_of_a_session_counts_for_its_earlier_questions_as_a_click() -> None:
    others = join(
        *([search(f"What is the {word} of", f"o{word}", "n")] for word in "abcdefgh")
    )  # which say what is no word of a need
    told = learn([*others, *join(*(ask_in_turn(f"c{number}") for number in range(3)))], LearnConfig())
    evidence, reasons = read(told)
    assert evidence == {"rotor speed?": {C}, "What is the speed limit of the rotor": {C}, "What is the lunch": {C}}
    assert reasons["rotor again"] == "no_feedback"
    assert told.counts["opened_and_asked_again"] == 3
    assert read(learn([*others, *ask_in_turn("c1")], LearnConfig()))[1]["rotor speed?"] == "few_voices"


def test_a_client_can_say_which_search_asked_again() -> None:
    first, second = search("wie schnell", pages=[A], time=1), search("rotor limit", pages=[B], time=2)
    again = mark(first, "asked_again", None, next=second.id)
    back = mark(second, "asked_again", None, next=first.id)
    events = [first, second, again, back, mark(second, "right", B, time=9)]
    assert read(learn(events, LearnConfig()))[0] == {"wie schnell": {B}, "rotor limit": {B}}


def test_what_belongs_to_no_search_or_has_no_text_is_counted() -> None:
    asked, silent = search(), search(question="")
    lost = Mark("gone", 0, "c1", "right", A, 1)
    events = [asked, silent, lost, mark(asked, "right", Evidence("z.pdf", 1)), mark(silent, "right")]
    lessons = learn(events, LearnConfig())
    assert read(lessons) == ({}, {QUESTION: "no_feedback"})
    assert {name: lessons.counts[name] for name in ("unknown_search", "page_not_shown", "no_text")} == {
        "unknown_search": 1,
        "page_not_shown": 1,
        "no_text": 1,
    }


def test_a_mark_at_a_rank_that_its_page_did_not_have_is_left_out() -> None:
    searches = [search(client=f"c{number}") for number in range(5)]
    for rank in (-1, 0, 2, 10**12):
        marks = [replace(mark(asked, "opened"), rank=rank) for asked in searches]
        lessons = learn([*searches, *marks], LearnConfig())
        assert (read(lessons), lessons.counts["page_not_shown"]) == (({}, {QUESTION: "no_feedback"}), 5)


def test_the_curve_is_estimated_where_pages_were_shown_at_several_ranks() -> None:
    generator, truth = np.random.default_rng(0), {1: 1.0, 2: 0.7, 4: 0.5}
    worth = generator.uniform(0.2, 0.9, 200)
    looks = [
        Look(voice, item, rank, bool(generator.random() < truth[rank] * worth[item]))
        for item in range(200)
        for rank in truth
        for voice in range(80)
    ]
    found = estimate_curve(looks)
    assert {rank: pytest.approx(found.chance(rank), abs=0.02) for rank in truth} == truth
    assert found.chance(3) == pytest.approx(1 / 3)
    assert found.chance(1000) == PositionCurve().chance(1000) == 0.1
    assert estimate_curve(look for look in looks if look.voice in range(MIN_VOICES - 1)).estimated == {1: 1.0}


def simulate(noise: float) -> tuple[list[Event], dict[str, Evidence]]:
    """Simulate clients who look down rankings of ten pages as the curve says, and open the right one or, by mistake, others; also
    the right page of each question, which is anywhere among the ten."""
    generator, truth = np.random.default_rng(1), dict[str, Evidence]()
    events: list[Event] = []
    for number in range(100):
        pages, right = [Evidence(f"q{number}.pdf", page) for page in range(1, 11)], int(generator.integers(10))
        truth[f"question {number}"] = pages[right]
        worth = np.where(np.arange(10) == right, 1 - noise, noise / 3)
        for client in generator.choice(60, 25, replace=False):
            asked = search(f"question {number}", f"c{client}", pages=pages)
            opened = np.flatnonzero(generator.random(10) < worth / np.arange(1, 11))
            events += [asked, *(mark(asked, "opened", pages[place]) for place in opened)]
    return events, truth


def test_clicks_far_down_teach_what_is_right_with_noise_and_a_client_who_means_harm() -> None:
    for noise, least_right, most_wrong in ((0.0, 70, 0), (0.3, 55, 6)):
        events, truth = simulate(noise)
        found = [
            (truth[question.question], page) for question in learn(events, LearnConfig()).questions for page in question.evidence
        ]
        assert sum(right == page for right, page in found) >= least_right
        assert sum(right == page and page.page_number > 4 for right, page in found) >= least_right / 3
        assert sum(right != page for right, page in found) <= most_wrong
    harm = join(*(visit("right", Evidence("harm.pdf", 1), "x", question=name, pages=[Evidence("harm.pdf", 1)]) for name in truth))
    spoilt = learn([*events, *harm], LearnConfig()).questions
    assert {(truth[question.question], page) for question in spoilt for page in question.evidence} >= set(found)
    assert sum(page.file == "harm.pdf" for question in spoilt for page in question.evidence) == LearnConfig().max_alone


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run with a test question, a page that has gone since, and feedback on both and on another question."""
    with StageFolder(tmp_path / "index", Identity("index", {}, {})) as folder:
        tested = Question("t", "What is tested?", (A,), split="test")
        write_index(folder.path, [build_page(file=f"{name}.pdf", page_number=1) for name in "ab"], [tested])
        folder.finish({})
    events = join(
        visit("right", B, "c1"),
        visit("right", A, "c1", question="what is TESTED?"),
        visit("right", C, "c1", question="Where is C?"),
    )
    (tmp_path / "feedback").mkdir()
    append_lines(tmp_path / "feedback" / "2026-03-01-abcd.jsonl", map(asdict, events))
    return tmp_path


def test_the_command_writes_questions_that_the_index_stage_reads(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["learn", str(run_dir)]) == 0
    assert "questions 1, left_out 2, test_question 1, page_gone 1" in capsys.readouterr().out
    questions, problems = read_questions(run_dir / "learned" / "questions.jsonl")
    assert [(question.question, question.evidence, question.category) for question in questions] == [(QUESTION, (B,), "feedback")]
    assert not problems
    assert json.loads((run_dir / "learned" / "counts.json").read_text())["counts"]["searches"] == 3
    assert main(["learn", str(run_dir), "--learn.max-alone", "0"]) == 0
    assert read_questions(run_dir / "learned" / "questions.jsonl", allow_unanswerable=True)[0] == []


def test_a_run_without_feedback_is_told_how_to_take_some(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run_dir / "feedback").rename(run_dir / "elsewhere")
    assert main(["learn", str(run_dir)]) == 1
    assert "no feedback. Serve the run with --serve.feedback.enabled." in capsys.readouterr().err
