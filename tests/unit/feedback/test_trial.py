"""A trial: interleaving, the sequential test, whose vote counts, and the ledger of champions."""

from collections import Counter
from dataclasses import replace
from math import exp
from pathlib import Path
from random import Random
from typing import Any

import pytest

from drag_ray.cli.main import main
from drag_ray.feedback.config import TrialConfig
from drag_ray.feedback.events import Action, Event, Mark, ShadowRanks, ShownSearch, TrialPart
from drag_ray.feedback.ledger import Contender, Ledger, Trial, begin_trial, locate
from drag_ray.feedback.log import EventLog, make_secret
from drag_ray.feedback.sequential_test import SequentialTest
from drag_ray.feedback.trial import CLOSED_AFTER_S, measure_trial
from drag_ray.serve.search.trials import interleave
from drag_ray.types import Evidence

PAGES = tuple(Evidence(f"{name}.pdf", 1) for name in "abcd")
TRIAL = Trial("t1", 0, Contender("base"), Contender("tuned"), "interleave", 0.05, 0.1, 1, "client")
LATER = 10.0 * CLOSED_AFTER_S


def test_teams_pick_in_turns_and_a_shared_beginning_belongs_to_none() -> None:
    shown, teams = interleave("abcd", "abdc", 4, Random(0))
    assert (shown[:2], teams[:2], sorted(teams[2:])) == (["a", "b"], "--", ["A", "B"])
    assert interleave("abc", "abc", 3, Random(0)) == (["a", "b", "c"], "---")
    assert interleave("ab", "", 3, Random(0)) == (["a", "b"], "--")
    assert interleave("abcdef", "fedcba", 4, Random(1)) == interleave("abcdef", "fedcba", 4, Random(1))


def test_each_team_is_first_as_often_and_they_have_as_many_pages() -> None:
    drawn = [interleave("abcdef", "uvwxyz", 6, Random(seed))[1] for seed in range(400)]
    assert all(Counter(teams) == {"A": 3, "B": 3} for teams in drawn)
    assert {teams[place : place + 2] for teams in drawn for place in (0, 2, 4)} == {"AB", "BA"}
    assert 160 < sum(teams[0] == "A" for teams in drawn) < 240


def test_e_values_are_what_a_hand_counts() -> None:
    """By quadrature: 2 ∫ (2q)^w (2(1-q))^l over (1/2, 1): 3/2 after a win, 15/4 after three, 1/2 after a loss, 2/3 after both."""
    for outcomes, expected in (("", 1.0), ("w", 3 / 2), ("www", 15 / 4), ("l", 1 / 2), ("wl", 2 / 3)):
        test = SequentialTest(0.05, 0.1)
        for outcome in outcomes:
            test.add(outcome == "w")
        steps = 20_000
        points = [0.5 + (place + 0.5) / (2 * steps) for place in range(steps)]
        area = sum((2 * q) ** test.wins * (2 * (1 - q)) ** test.losses for q in points) / steps
        assert exp(test.log_e_better) == pytest.approx(area, rel=1e-6)
        assert exp(test.log_e_better) == pytest.approx(expected)


def test_the_interval_and_the_decisions_mirror_each_other() -> None:
    test, mirror = SequentialTest(0.05, 0.1), SequentialTest(0.05, 0.1)
    while test.decide() is None:
        test.add(True)
        mirror.add(False)
    assert (test.wins, test.decide(), mirror.decide()) == (7, "better", "worse")  # (2^8 - 1) / 8 = 31.9 >= 20, and 127 / 7 is not
    low, high = test.compute_interval()
    assert 0.4 < low < high == pytest.approx(1.0)
    assert mirror.compute_interval() == pytest.approx((1 - high, 1 - low))


@pytest.mark.seconds
def test_looking_after_every_vote_promotes_no_oftener_than_alpha() -> None:
    decisions = Counter[str | None]()
    for seed in range(1000):
        random, test = Random(seed), SequentialTest(0.05, 0.1)
        while (decision := test.decide()) is None and test.wins + test.losses < 400:
            test.add(random.random() < 0.5)
        decisions[decision] += 1
    assert decisions["better"] <= 50
    assert decisions["worse"] <= 50
    assert decisions["equal"] > 500


def test_a_better_challenger_is_found_about_when_it_was_foretold() -> None:
    votes: list[int] = []
    for seed in range(100):
        random, test = Random(seed), SequentialTest(0.05, 0.05)
        while test.decide() is None:
            test.add(random.random() < 0.65)
        assert test.decide() == "better"
        votes.append(test.wins + test.losses)
    foretold = SequentialTest(0.05, 0.05, wins=64, losses=34).estimate_more()
    assert foretold is not None
    assert 0.5 < (98 + foretold) / (sum(votes) / 100) < 2


def search(client: str, number: int = 0, teams: str = "ABAB", **more: Any) -> ShownSearch:
    part = TrialPart("t1", teams, has_failed=not teams)
    return replace(ShownSearch(f"s-{client}-{number}", number, client, "", "q", "", "base", PAGES, part), **more)


def mark(of: ShownSearch, page: Evidence, action: Action = "opened", client: str = "", late_s: int = 0) -> Mark:
    return Mark(of.id, of.time + late_s, client or of.client, action, page, of.pages.index(page) + 1)


A, B, *_ = PAGES


def count(*events: Event, trial: Trial = TRIAL, now: float = LATER) -> tuple[int, int, int]:
    figures = measure_trial(trial, events, now).figures
    return figures.wins, figures.losses, figures.ties


def test_a_click_counts_for_the_team_and_wrong_against_it() -> None:
    one = search("c1")
    assert count(one, mark(one, A)) == (0, 1, 0)
    assert count(one, mark(one, B)) == (1, 0, 0)
    assert count(one, mark(one, A), mark(one, A, "wrong")) == (1, 0, 0)  # the last word of a page
    assert count(one, mark(one, A), mark(one, B)) == (0, 0, 1)
    assert count(one) == (0, 0, 0)
    shared = search("c1", teams="-BAB")
    assert count(shared, mark(shared, A)) == (0, 0, 0)


def test_a_voice_votes_once_whatever_it_sends_and_whoever_it_says_it_is() -> None:
    many = [search("c1", number, session=f"session {number}") for number in range(100)]
    marks = [mark(one, B) for one in many]
    assert count(*many, *marks) == (1, 0, 0)
    assert count(*many, *marks, trial=replace(TRIAL, voices="session"))[0] >= 7  # which the option says
    foreign = search("c2")
    assert count(foreign, mark(foreign, B, client="c1")) == (0, 0, 0)


def test_a_vote_counts_when_its_search_is_closed_and_never_changes() -> None:
    first, second = search("c1"), search("c1", 1)
    events = [first, mark(first, B, "right"), second, mark(second, A), mark(first, A, late_s=CLOSED_AFTER_S + 1)]
    assert count(*events, now=CLOSED_AFTER_S - 1) == (0, 0, 0)
    assert count(*events) == (1, 0, 0)
    assert count(*events, mark(first, B, "wrong", late_s=CLOSED_AFTER_S + 1)) == (1, 0, 0)
    assert count(*events, trial=replace(TRIAL, searches=2)) == (0, 0, 1)


def test_what_comes_after_the_decision_does_not_count() -> None:
    voices = [search(f"c{number}", number) for number in range(20)]
    standing = measure_trial(TRIAL, [event for one in voices for event in (one, mark(one, B))], LATER)
    assert (standing.decision, standing.test.wins, standing.later) == ("better", 7, 13)
    others = search("x", part=TrialPart("another trial", "ABAB"))
    failed = search("y", teams="")
    standing = measure_trial(TRIAL, [others, mark(others, B), failed, mark(failed, B)], LATER)
    assert (standing.figures.voices, standing.searches["failed"], standing.searches["all"]) == (0, 1, 1)


def test_a_shadow_decides_nothing() -> None:
    trial = replace(TRIAL, mode="shadow")
    events: list[Event] = []
    for number in range(30):
        one = search(f"c{number}", number, part=TrialPart("t1"))
        events += [one, mark(one, B), ShadowRanks(one.id, one.time, (2, 1, 0, 0))]
    standing = measure_trial(trial, events, LATER)
    assert standing.shadow == [(0.5, 1.0)] * 30
    assert standing.decision is None
    assert "0.500 as it was shown, 1.000 by the challenger" in str(standing)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    make_secret(tmp_path / "feedback")
    return tmp_path


def begin(run_dir: Path, weights: str = "w1", **options: Any) -> Trial | None:
    config = TrialConfig.model_validate({"challenger": "tuned", "champion": "base"} | options)
    return begin_trial(Ledger(run_dir), config, "tuned", lambda name: weights if name == "tuned" else "")


async def write_votes(run_dir: Path, trial: Trial, number: int) -> None:
    log = EventLog(run_dir / "feedback", 90)
    for voice in range(number):
        one = search(f"c{voice}", trial.time - 2 * CLOSED_AFTER_S + voice, part=TrialPart(trial.id, "ABAB"))
        await log.append(one)
        await log.append(mark(one, B))


def test_the_same_trial_goes_on_and_other_terms_or_weights_begin_another(run_dir: Path) -> None:
    first = begin(run_dir)
    assert first
    assert begin(run_dir, share=0.9) == first  # the share is no term of the test
    assert begin(run_dir, alpha=0.01) != first
    assert begin(run_dir, weights="w2") not in (None, first)
    assert len(Ledger(run_dir).entries) == 3


async def test_promotion_and_rollback_are_recorded_with_their_figures(
    run_dir: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    trial = begin(run_dir)
    assert trial
    await write_votes(run_dir, trial, 3)
    assert main(["trial", str(run_dir), "--promote"]) == 2
    assert "--promote: undecided; about" in (said := capsys.readouterr().err)
    assert "--force" in said
    await write_votes(run_dir, trial, 10)
    assert main(["trial", str(run_dir)]) == 0
    assert "decision: the challenger is better" in capsys.readouterr().out
    assert main(["trial", str(run_dir), "--promote"]) == 0
    assert "the champion is tuned, it was base" in capsys.readouterr().out
    change = Ledger(run_dir).changes[-1]
    assert change.figures
    assert (change.is_forced, change.trial, change.figures.wins, change.figures.decision) == (False, trial.id, 7, "better")
    assert main(["trial", str(run_dir), "--promote"]) == 2
    assert "no trial goes on; tuned is the champion since" in capsys.readouterr().err
    assert begin(run_dir) is None
    assert "is the champion already" in caplog.text
    before = locate(run_dir).read_bytes()
    assert main(["trial", str(run_dir), "--rollback"]) == 0
    assert locate(run_dir).read_bytes().startswith(before)
    assert Ledger(run_dir).changes[-1].champion.model == "base"
    assert main(["trial", str(run_dir), "--rollback"]) == 2
    assert "nothing was promoted that is not rolled back" in capsys.readouterr().err


def test_a_forced_promotion_says_so(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begin(run_dir, mode="shadow")
    assert main(["trial", str(run_dir), "--promote"]) == 2
    assert "--promote: a shadow decides nothing" in capsys.readouterr().err
    assert main(["trial", str(run_dir), "--promote", "--force"]) == 0
    assert Ledger(run_dir).changes[-1].is_forced
    assert main(["trial", str(run_dir)]) == 0
    assert "(promote, without the test's word)" in capsys.readouterr().out


def test_without_a_trial_the_command_says_how_to_begin_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ([], ["--promote"]):
        assert main(["trial", str(tmp_path), *action]) == 1
        assert "no trial. Serve the run with --serve.feedback.enabled --serve.trial.challenger NAME" in capsys.readouterr().err
    assert main(["trial", str(tmp_path), "--force"]) == 2
    assert "--force: goes with --promote" in capsys.readouterr().err
