"""Rollouts that are taken over from an earlier evaluation."""

from dataclasses import replace
from pathlib import Path

import pytest

from drag_ray import artifacts
from drag_ray.baselines.candidates import REWARD_FEATURE
from drag_ray.baselines.gain_model import GainModel
from drag_ray.config import load
from drag_ray.evaluate.config import EvaluateSections
from drag_ray.evaluate.policies import choose_models
from drag_ray.evaluate.reuse import fingerprint_policy, list_earlier, prepare_rollouts
from drag_ray.pipeline import compute_identity
from drag_ray.run_config import RunConfig
from drag_ray.stage_folder import StageFolder
from drag_ray.stages import STAGES

FILE = "trajectories/1.parquet"


def finish(stage_dir: Path, counts: dict[str, int]) -> None:
    with StageFolder(stage_dir, artifacts.Identity(stage_dir.name, {}, {}, "code")) as folder:
        folder.finish(counts)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    finish(tmp_path / "index", {})
    finish(tmp_path / "finetune", {"steps": 1})
    artifacts.write_text(tmp_path / "finetune" / "adapter" / "adapter_config.json", "{}")
    return tmp_path


def fingerprint_all(run_dir: Path, *options: str, gain_model: GainModel | None = None) -> dict[str, str]:
    config = load(RunConfig, ["--run-dir", str(run_dir), *options])
    identity = compute_identity(STAGES["evaluate"], config)
    models = choose_models(config.take(EvaluateSections), run_dir / "finetune", has_gpu=True)
    return {model.name: fingerprint_policy(model, identity, gain_model) for model in models}


def test_training_again_changes_the_tuned_policy_alone(run_dir: Path) -> None:
    before = fingerprint_all(run_dir)
    finish(run_dir / "finetune", {"steps": 2})
    artifacts.write_text(run_dir / "finetune" / "adapter" / "adapter_config.json", "{}")
    after = fingerprint_all(run_dir)
    assert after["base"] == before["base"]
    assert after["tuned"] != before["tuned"]


def test_another_model_of_gain_or_reward_model_chooses_anew(run_dir: Path) -> None:
    lists = GainModel(("rbo",), (0.5,), (0.2,), (0.1, 0.0), 0.01)
    rewards = replace(lists, features=(REWARD_FEATURE,))
    before = [fingerprint_all(run_dir, gain_model=model)["base"] for model in (None, lists, replace(lists, bias=0.02), rewards)]
    assert len(set(before)) == 4
    finish(run_dir / "finetune", {"steps": 2})
    artifacts.write_text(run_dir / "finetune" / "adapter" / "adapter_config.json", "{}")
    after = [fingerprint_all(run_dir, gain_model=model)["base"] for model in (None, lists, rewards)]
    assert [fingerprint in before for fingerprint in after] == [True, True, False]


def test_an_adapter_that_is_written_anew_changes_its_policy_alone(run_dir: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "adapters" / name for name in ("first", "second")]
    for folder in folders:
        artifacts.write_text(folder / "adapter_config.json", "{}")
    options = ("--evaluate.adapters", f'["first={folders[0]}", "second={folders[1]}"]')
    before = fingerprint_all(run_dir, *options)
    artifacts.write_text(folders[1] / "adapter_config.json", '{"r": 8}')
    after = fingerprint_all(run_dir, *options)
    assert {name for name in before if before[name] != after[name]} == {"second"}


def test_other_optimised_instructions_change_their_policy_alone(run_dir: Path) -> None:
    identity = compute_identity(STAGES["evaluate"], load(RunConfig, ["--run-dir", str(run_dir)]))
    base = choose_models(load(RunConfig, []).take(EvaluateSections), None, has_gpu=True)[0]
    prompted = [replace(base, name="prompted", source="prompt", instructions=text) for text in ("One.", "Two.")]
    assert len({fingerprint_policy(model, identity) for model in (base, *prompted)}) == 3


@pytest.mark.parametrize("options", [("--agent.top-k", "5"), ("--engine.dtype", "float16"), ("--seed", "1")])
def test_what_rollouts_depend_on_changes_every_policy(run_dir: Path, options: tuple[str, ...]) -> None:
    before, after = fingerprint_all(run_dir), fingerprint_all(run_dir, *options)
    assert all(before[name] != after[name] for name in before)


def test_more_questions_and_other_baselines_change_no_policy(run_dir: Path) -> None:
    options = ("--evaluate.limit", "7", "--evaluate.baselines", '["rm3", "hyde"]', "--collect.limit", "3")
    assert fingerprint_all(run_dir) == fingerprint_all(run_dir, *options)


def test_the_newest_rollouts_of_the_same_policy_are_copied(tmp_path: Path) -> None:
    for name, fingerprint in (("old", "same"), ("new", "same"), ("newest", "other")):
        folder = tmp_path / "_previous" / f"evaluate-{name}" / "rollouts" / "base"
        prepare_rollouts(folder, fingerprint, [])
        artifacts.write_text(folder / FILE, name)
    stage_dir = tmp_path / "evaluate"
    earlier = list_earlier(stage_dir)
    assert [folder.parents[1].name for folder in earlier] == ["evaluate-newest", "evaluate-new", "evaluate-old"]
    folder = stage_dir / "rollouts" / "base"
    assert prepare_rollouts(folder, "same", earlier) == earlier[1]
    assert (folder / FILE).read_text() == "new"
    assert (earlier[1] / FILE).is_file()
    assert prepare_rollouts(folder, "same", earlier) is None  # it is gone on with


def test_nothing_is_taken_from_another_policy(tmp_path: Path) -> None:
    other = tmp_path / "_previous" / "evaluate-x" / "rollouts" / "base"
    prepare_rollouts(other, "other", [])
    artifacts.write_text(other / FILE, "")
    folder = tmp_path / "evaluate" / "rollouts" / "base"
    assert prepare_rollouts(folder, "same", [other]) is None
    assert not (folder / FILE).exists()


def test_a_copy_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "evaluate" / "rollouts" / "base"
    artifacts.write_text(folder / FILE, "half")
    assert prepare_rollouts(folder, "same", []) is None
    assert not (folder / FILE).exists()


def test_a_mark_that_cannot_be_read_is_nobodys(tmp_path: Path) -> None:
    other = tmp_path / "_previous" / "evaluate-x" / "rollouts" / "base"
    (other / "policy.json").mkdir(parents=True)
    assert prepare_rollouts(tmp_path / "evaluate" / "rollouts" / "base", "same", list_earlier(tmp_path / "evaluate")) is None
