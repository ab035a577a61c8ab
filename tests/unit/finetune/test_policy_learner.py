"""A policy learns step by step: as one trainer with all rows would, and after an interruption as without."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from adapters import compute_logprobs
from training_cases import build_row, write_job, write_model

from drag_ray.engine.models.canary import read_canary
from drag_ray.errors import NotFiniteError
from drag_ray.finetune.config import TrainJob
from drag_ray.finetune.policy_learner import PolicyLearner

pytestmark = pytest.mark.seconds


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("nano"))


def start(job: TrainJob, checkpoint_dir: Path | None = None, **options: Any) -> PolicyLearner:
    defaults: dict[str, Any] = {"temperature": 1.0, "num_steps": 3, "num_updates": 1}
    return PolicyLearner(job, **defaults | options, checkpoint_dir=checkpoint_dir, yields_gpu=False)


def write(folder: Path, nano: Path, **options: Any) -> TrainJob:
    defaults = {"method": "grpo", "learning_rate": 0.01, "batch_size": 4, "grpo": {"kl_weight": 0.1}}
    return write_job(folder, nano, defaults | options)


def build_rows(number: int = 4) -> list[dict[str, Any]]:
    return [build_row("grpo", place) | {"trajectory_id": f"q{place}-0"} for place in range(number)]


def copy_trained(learner: PolicyLearner) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in learner._trained]


def test_a_policy_goes_on_from_its_checkpoint_as_if_nothing_had_happened(nano: Path, tmp_path: Path) -> None:
    job, rows = write(tmp_path, nano), build_rows()
    whole = start(job)
    first = whole.learn(rows[:2], 1)
    whole.save(tmp_path)
    second = whole.learn(rows[2:], 2)
    resumed = start(job, tmp_path)
    assert resumed.learn(rows[2:], 2) == second
    for one, other in zip(copy_trained(whole), copy_trained(resumed), strict=True):
        assert torch.equal(one, other)
    assert first["kl"] == pytest.approx(0, abs=1e-6)
    assert second["kl"] > 0
    assert first["learning_rate"] == 0.01 > second["learning_rate"]
    assert second["furthest"] in {"1 (q2-0)", "2 (q3-0)"}
    assert first["engine_kl"] == 0  # nobody knows
    assert 5 < first["entropy"] < 15  # of random weights over 49,152 tokens


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_canary_of_a_policy_has_what_its_adapter_says_of_tokens_of_a_row(
    nano: Path, tmp_path: Path, temperature: float
) -> None:
    learner, rows = start(write(tmp_path, nano), temperature=temperature), build_rows()
    learner.save(tmp_path / "new")
    assert read_canary(tmp_path / "new") is None
    for step in (1, 2):
        learner.learn(rows, step)
        learner.save(tmp_path / str(step))
    canary = read_canary(tmp_path / "2")
    assert canary
    assert len(canary.token_ids) == 1 + len(canary.log_probabilities)
    found = {
        name: compute_logprobs(
            str(tmp_path / name) if name else "", canary.token_ids[:1], canary.token_ids[1:], str(nano)
        ).tolist()
        for name in ("", "1", "2")
    }
    assert canary.log_probabilities == pytest.approx(found["2"], abs=1e-4)
    assert canary.others["the policy of the step before"] == pytest.approx(found["1"], abs=1e-4)
    assert canary.others["the start"] == pytest.approx(found[""], abs=1e-4)
    assert [bool(canary.find_difference(found[name])) for name in ("", "1", "2")] == [True, True, False]


@pytest.mark.parametrize("options", [{"batch_size": 1}, {"batch_size": 3, "gradient_checkpointing": True}])
def test_a_step_is_the_same_however_it_is_cut_into_batches(nano: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    rows = build_rows()
    one, other = start(write(tmp_path, nano)), start(write(tmp_path, nano, **options))
    figures, others = one.learn(rows, 1), other.learn(rows, 1)
    assert {name: others[name] for name in ("loss", "kl", "entropy", "tokens")} == pytest.approx(
        {name: figures[name] for name in ("loss", "kl", "entropy", "tokens")}, abs=1e-5
    )
    for weight, same in zip(copy_trained(one), copy_trained(other), strict=True):
        torch.testing.assert_close(weight, same, rtol=1e-3, atol=1e-4)


def test_what_was_likely_becomes_likelier_where_it_earned_more(nano: Path, tmp_path: Path) -> None:
    """In several updates of a step the ratio to the policy before it is clipped."""
    learner = start(write(tmp_path, nano, learning_rate=0.3, grpo={"kl_weight": 0.0, "clip_range": 0.01}), num_updates=2)
    rows = build_rows(2)
    figures = learner.learn([*rows, *({**row, "trajectory_id": f"q{place}-1"} for place, row in enumerate(rows))], 1)
    assert 0 < figures["clipped"] <= 0.5  # of the second update alone
    assert figures["rows"] == 4


def test_rows_without_advantage_leave_the_policy_as_it_is(nano: Path, tmp_path: Path) -> None:
    learner = start(write(tmp_path, nano))
    before = copy_trained(learner)
    figures = learner.learn([{**row, "advantage": 0.0} for row in build_rows()], 1)
    assert figures["rows"] == 0
    assert "loss" not in figures
    assert all(torch.equal(one, other) for one, other in zip(before, copy_trained(learner), strict=True))


def test_it_trains_on_from_an_adapter_and_measures_from_there(nano: Path, tmp_path: Path) -> None:
    job, rows = write(tmp_path, nano), build_rows()
    earlier = start(job)
    earlier.learn(rows, 1)
    earlier.save(tmp_path / "start")
    learner = start(replace(job, start_dir=tmp_path / "start"))
    for one, other in zip(copy_trained(earlier), copy_trained(learner), strict=True):
        assert torch.equal(one, other)
    assert learner.learn(rows, 1)["kl"] == pytest.approx(0, abs=1e-6)
    learner.save(tmp_path / "next")
    resumed = start(replace(job, start_dir=tmp_path / "start"), tmp_path / "next")
    assert resumed.learn(rows, 2)["kl"] > 0


def test_each_reply_says_how_far_its_engine_is_from_the_policy_that_it_drew_from(nano: Path, tmp_path: Path) -> None:
    learner, rows = start(write(tmp_path, nano)), build_rows()
    assert learner.learn(rows, 1)["engine_gaps"] == []  # nobody knows
    numbers = [len(row["completion_token_ids"]) for row in rows]
    known = [{**row, "completion_logprobs": [-20.0] * number} for row, number in zip(rows, numbers, strict=True)]
    figures = learner.learn(known, 2)
    assert [name for name, _ in figures["engine_gaps"]] == [row["trajectory_id"] for row in rows]
    mean = sum(gap * number for (_, gap), number in zip(figures["engine_gaps"], numbers, strict=True)) / sum(numbers)
    assert -figures["engine_kl"] == pytest.approx(mean, abs=1e-4)
    assert 5 < mean < 15  # the engine claims to have found them much less likely


def test_numbers_that_are_not_finite_are_not_learned_and_name_their_rows(nano: Path, tmp_path: Path) -> None:
    learner = start(write(tmp_path, nano))
    before = copy_trained(learner)
    rows = build_rows(2)
    with pytest.raises(NotFiniteError, match=r"loss nan.*\(q1-0\).*Lower finetune.learning_rate"):
        learner.learn([rows[0], {**rows[1], "advantage": float("nan")}], 1)
    assert all(torch.equal(one, other) for one, other in zip(before, copy_trained(learner), strict=True))


def test_a_step_of_which_all_rows_are_too_long_teaches_nothing_and_ends_nothing(nano: Path, tmp_path: Path) -> None:
    learner = start(write(tmp_path, nano, max_length=16))
    before = copy_trained(learner)
    assert learner.learn(build_rows(), 1)["rows"] == 0
    assert all(torch.equal(one, other) for one, other in zip(copy_trained(learner), before, strict=True))
