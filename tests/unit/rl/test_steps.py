"""The order of questions, the ledger, batches and limits of reinforcement learning."""

import json
import math
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from factories import asked_at, build_answer, build_question, build_search, build_trajectory, write_trajectories

from drag_ray.engine.config import EngineConfig
from drag_ray.errors import ArtifactError, ConfigError
from drag_ray.format.config import FormatConfig
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.process.config import ProcessConfig
from drag_ray.rl import batches
from drag_ray.rl.batches import build_batch, compare_engines, find_engines, score
from drag_ray.rl.config import RlConfig, RlSections
from drag_ray.rl.ledger import StepLedger, draw_next
from drag_ray.rl.limits import find_breach

NAMES = ["a", "b", "c", "d", "e"]


def test_every_question_comes_once_before_any_comes_again_in_another_order() -> None:
    drawn = [name for start in range(10) for name in draw_next(NAMES, 7, start, 1)[0]]
    assert sorted(drawn[:5]) == sorted(drawn[5:]) == NAMES
    assert drawn[:5] != drawn[5:]
    assert draw_next(NAMES, 7, 1, 3) == (drawn[1:4], 4)
    assert draw_next(NAMES, 8, 0, 5)[0] != drawn[:5]


def test_a_step_is_full_where_a_new_order_begins_and_none_comes_twice_in_it() -> None:
    place = 0
    for _ in range(20):
        first, place = draw_next(NAMES, 7, place, 3)
        refill, place = draw_next(NAMES, 7, place, 1, first)
        assert len({*first, *refill}) == 4
    assert draw_next(NAMES, 7, 0, 9)[0] == draw_next(NAMES, 7, 0, 5)[0]  # there are no others
    assert draw_next(NAMES, 7, 0, 1, NAMES)[0] == []


def test_the_ledger_knows_what_was_drawn_and_what_came_of_it(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    ledger = StepLedger(path)
    ledger.add({"event": "drawn", "step": 1, "policy": 0, "questions": ["a", "b"], "next_place": 2})
    ledger.add({"event": "drawn", "step": 1, "policy": 0, "questions": ["c"], "next_place": 5})
    ledger.add({"event": "trained", "step": 1, "figures": {"reward": 0.5}})
    with path.open("ab") as stream:
        stream.write(b'{"event": "drawn", "step": 2, "pol')  # as a kill leaves it
    for known in (ledger, StepLedger(path)):
        assert (known.find_policy(1), known.find_policy(2)) == (0, None)
        assert (known.find_questions(1), known.count_draws(1), known.num_drawn) == (["a", "b", "c"], 2, 3)
        assert known.next_place == 5
        assert (known.read_figures("trained"), known.read_figures("validated")) == ({1: {"reward": 0.5}}, {})
    path.write_text(path.read_text().replace('"step": 1, "policy"', '"step": "", "policy"', 1))
    with pytest.raises(ArtifactError, match=r"steps.jsonl: a line is not what was written.*remove .* to begin anew"):
        StepLedger(path)


def test_a_batch_has_the_rows_and_the_figures_of_its_rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    better, same = (build_question(id=name, question=f"Where is {name} said?") for name in ("better", "same"))
    asked = asked_at(3)
    rollouts = [
        build_trajectory(build_search("rotor", 1), question=better, sample_index=0, **asked),
        build_trajectory(build_answer("x"), question=better, sample_index=1, **asked),
        build_trajectory(build_search("a", 2), question=same, sample_index=0, **asked),
        build_trajectory(build_search("b", 2), question=same, sample_index=1, **asked),
    ]
    path = write_trajectories(tmp_path / "part.parquet", rollouts)
    batch = build_batch(score([path], ProcessConfig()), FormatConfig())
    rows = [json.loads(line) for line in batch.lines.splitlines()]
    assert batch.learned == {"better"}
    assert {row["trajectory_id"]: row["advantage"] for row in rows} == pytest.approx(
        {"better-0": 0.25, "better-1": -0.25, "same-0": 0.0, "same-1": 0.0}
    )
    figures = batch.figures
    assert (figures["rollouts"], figures["without_search"], figures["idle"]) == (4, 0.25, "better-1")
    assert figures["reward"] == pytest.approx((0.5 + 2 * 0.1309) / 4, abs=1e-4)
    assert figures["spread"] == pytest.approx(0.25**2 / 2, abs=1e-4)  # of one question 1/16, of the other none
    assert "leaked" not in figures
    monkeypatch.setattr(batches, "screen_rows", lambda rows, _: rows.filter(pl.col("trajectory_id") != "same-0"))
    assert build_batch(score([path], ProcessConfig()), FormatConfig()).figures == figures | {"leaked": 1}


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"kl": 0.9, "entropy": 0.2, "without_search": 0.4}, ""),
        ({"kl": 1.5, "furthest": "3 (q7/full/1)"}, r"rl step 4: .* 1.5 nats .*max_kl 1.* rollout 3 \(q7/full/1\).*learning_rate"),
        ({"kl": 0.1, "entropy": 0.001}, r"by 0.001 nats a token, below rl.min_entropy 0.01.*clip_high"),
        ({"worst_engine_kl": -0.15, "worst_engine": "e1", "lag": 0}, r"files \*e1\* is 0.15 nats .*beyond 0.1 .*has not reached"),
        ({"worst_engine_kl": 0.15, "worst_engine": "e1", "lag": 1}, ""),
        ({"without_search": 1.0, "idle": "q1/full/0"}, r"100% of the rollouts .* Look at the rollout q1/full/0.*search_cost"),
        ({"repetitive": 0.6, "furthest": "q2/full/0"}, r"60% of the replies go round in circles.*q2/full/0.*agent.max_tokens"),
        ({"repetitive": 0.5, "copied": 1.0, "cut": 0.9, "clipped": 0.5}, ""),
        ({"cut": 0.95, "longest": "q3/full/0"}, r"95% of the replies are cut .*max_cut 0.9.*q3/full/0.*invalid_cost"),
        ({"clipped": 0.6, "furthest": "q4/full/0"}, r"60% of the learned tokens .*max_clipped 0.5.*q4/full/0.*learning_rate"),
        ({}, ""),
    ],
)
def test_a_limit_names_step_rollout_and_likely_cause(figures: dict[str, Any], said: str) -> None:
    breach = find_breach(4, {4: figures}, {}, RlConfig())
    assert re.search(said, breach) if said else not breach


def test_copies_of_the_question_stop_the_stage_where_a_limit_is_set() -> None:
    breach = find_breach(1, {1: {"copied": 0.9}}, {}, RlConfig(max_copied=0.8))
    assert "90% of the searches hold the whole question" in breach


@pytest.mark.parametrize(
    ("start", "now", "stops"),
    [
        ({"reward": 0.4, "deviation": 0.2}, {"reward": 0.29, "worst": "q5/full/0"}, True),
        ({"reward": 0.4, "deviation": 0.2}, {"reward": 0.31}, False),
        ({"reward": 40.0, "deviation": 20.0}, {"reward": 31.0}, False),
        ({"reward": 0.4, "deviation": 0.0}, {"reward": 0.1}, False),  # all alike, so nothing says what is much
        ({"reward": 0.4, "deviation": 0.2}, {"reward": math.nan}, False),
        ({}, {}, False),
    ],
)
def test_a_reward_in_validation_far_below_that_of_the_start_stops_the_stage(
    start: dict[str, Any], now: dict[str, Any], stops: bool
) -> None:
    breach = find_breach(2, {2: {}}, {0: start, 2: now}, RlConfig())
    said = r"rl step 2: the reward in validation is 0.29, 0.11 below .*beyond 0.1 \(rl.max_decline 0.5.*rollout q5/full/0"
    assert bool(re.search(said, breach)) is stops
    assert bool(breach) is stops
    assert not find_breach(3, {3: {}}, {0: start, 2: now}, RlConfig())  # said once, after its step


def test_a_single_step_that_seems_far_from_the_start_stops_nothing() -> None:
    trained = {step: {"kl": kl} for step, kl in enumerate([0.0, 2.1, 0.4, 1.5, 1.6], start=1)}
    assert [bool(find_breach(step, trained, {}, RlConfig())) for step in trained] == [False, False, False, True, True]


def test_an_engine_with_an_old_adapter_is_found_by_the_replies_that_it_drew(tmp_path: Path) -> None:
    """Of six replies by two engines, those of one are as likely as the policy finds them, those of the other are not."""
    paths = [
        write_trajectories(tmp_path / f"{number:08}-{engine}-0.parquet", [build_trajectory(id=f"{engine}/{number}")])
        for number, engine in enumerate(["aaaaaaaa", "bbbbbbbb"] * 3)
    ]
    engines = find_engines(paths)
    assert set(engines.values()) == {"aaaaaaaa", "bbbbbbbb"}
    gaps = [(name, 0.001 if name.startswith("a") else -0.2 - 0.01 * place) for place, name in enumerate(sorted(engines))]
    assert compare_engines(gaps, engines) == {"worst_engine_kl": pytest.approx(0.24), "worst_engine": "bbbbbbbb"}
    assert compare_engines([], engines) == {}


def test_options_without_which_nothing_is_learned_are_refused() -> None:
    def check(**options: Any) -> None:
        RunConfig.model_validate(options).take(RlSections).check()

    check()
    with pytest.raises(ConfigError, match="rl trains weights"):
        check(engine={"backend": "openai", "model": "m", "endpoint": {"address": "http://there"}}, finetune={})
    with pytest.raises(ConfigError, match="the same reply each time"):
        check(rl={"preset": "greedy"})
    for options in (
        {"rl": {"preset": "creative", "max_lag": 1}},
        {"rl": {"preset": "low_temp"}, "finetune": {"grpo": {"loss": "oapl"}}},
    ):
        with pytest.raises(ConfigError, match="record at temperature 1"):
            check(**options)
    with pytest.raises(ConfigError, match="Leave the judge out"):
        check(process={"judge": {"enabled": True}})
    for options in ({"rl": {"max_lag": 1}}, {"finetune": {"grpo": {"loss": "oapl"}}}):
        check(**options)
        with pytest.raises(ConfigError, match="Turn it on"):
            check(engine=EngineConfig(logprobs=False), **options)


def test_rows_have_the_baseline_of_the_loss_and_records_the_options_of_the_method() -> None:
    sections = RunConfig.model_validate({"finetune": {"grpo": {"loss": "rloo"}}}).take(RlSections)
    assert (sections.rows.baseline, sections.training.method) == ("others", "grpo")
    dumped = sections.dump()["finetune"]
    assert dumped["grpo"]["loss"] == "rloo"
    assert "sft" not in dumped
