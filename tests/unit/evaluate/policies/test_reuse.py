"""Rollouts that are taken over from an earlier evaluation."""

from pathlib import Path

import pytest
from factories import build_trajectory

from drag_ray.config import load
from drag_ray.evaluate.config import EvaluateSections
from drag_ray.evaluate.policies.policy import choose_models
from drag_ray.evaluate.policies.reuse import fingerprint_policy, list_earlier, prepare_rollouts
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import compute_identity
from drag_ray.pipeline.stages import STAGES
from drag_ray.rollout import journal
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts


def finish(stage_dir: Path, counts: dict[str, int]) -> None:
    with StageFolder(stage_dir, artifacts.Identity(stage_dir.name, {}, {})) as folder:
        folder.finish(counts)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    finish(tmp_path / "index", {})
    finish(tmp_path / "finetune", {"steps": 1})
    artifacts.write_text(tmp_path / "finetune" / "adapter" / "adapter_config.json", "{}")
    return tmp_path


def fingerprint_all(run_dir: Path, *options: str) -> dict[str, str]:
    config = load(RunConfig, ["--run-dir", str(run_dir), *options])
    identity = compute_identity(STAGES["evaluate"], config)
    models = choose_models(config.take(EvaluateSections), run_dir / "finetune", has_gpu=True)
    return {model.name: fingerprint_policy(model, identity) for model in models}


@pytest.mark.seconds
def test_training_again_changes_the_tuned_policy_alone(run_dir: Path) -> None:
    before = fingerprint_all(run_dir)
    finish(run_dir / "finetune", {"steps": 2})
    artifacts.write_text(run_dir / "finetune" / "adapter" / "adapter_config.json", "{}")
    after = fingerprint_all(run_dir)
    assert after["base"] == before["base"]
    assert after["tuned"] != before["tuned"]


def test_an_adapter_that_is_written_anew_changes_its_policy_alone(run_dir: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "adapters" / name for name in ("first", "second")]
    for folder in folders:
        artifacts.write_text(folder / "adapter_config.json", "{}")
    options = ("--evaluate.adapters", f'["first={folders[0]}", "second={folders[1]}"]')
    before = fingerprint_all(run_dir, *options)
    artifacts.write_text(folders[1] / "adapter_config.json", '{"r": 8}')
    after = fingerprint_all(run_dir, *options)
    assert {name for name in before if before[name] != after[name]} == {"second"}


@pytest.mark.seconds
@pytest.mark.parametrize(
    "options",
    [("--agent.top-k", "5"), ("--engine.dtype", "float16"), ("--seed", "1"), ("--evaluate.degradation.share", "0.5")],
)
def test_what_rollouts_depend_on_changes_every_policy(run_dir: Path, options: tuple[str, ...]) -> None:
    before, after = fingerprint_all(run_dir), fingerprint_all(run_dir, *options)
    assert all(before[name] != after[name] for name in before)


def test_more_questions_and_other_baselines_change_no_policy(run_dir: Path) -> None:
    options = ("--evaluate.limit", "7", "--evaluate.baselines", '["rm3", "hyde"]', "--collect.limit", "3")
    assert fingerprint_all(run_dir) == fingerprint_all(run_dir, *options)


def make_rollouts(folder: Path, fingerprints: dict[str, str], question: str = "q") -> Path:
    """An earlier evaluation's rollouts on one engine: one of each policy."""
    prepare_rollouts(folder, fingerprints, [])
    journal.begin_attempt(folder)
    writer = journal.Journal(folder, flush_s=60)
    for policy in fingerprints:
        writer.add(build_trajectory(id=f"{question}/greedy/0@{policy}", policy=policy))
    writer.flush()
    return folder


def list_ids(folder: Path) -> list[str]:
    return sorted(journal.read_finished_ids(folder))


def test_the_newest_rollouts_of_the_same_policy_are_copied(tmp_path: Path) -> None:
    for name, fingerprint in (("old", "same"), ("new", "same"), ("newest", "other")):
        make_rollouts(tmp_path / "_previous" / f"evaluate-{name}" / "rollouts" / "engine1", {"base": fingerprint}, name)
    stage_dir = tmp_path / "evaluate"
    earlier = list_earlier(stage_dir)
    assert [folder.parents[1].name for folder in earlier] == ["evaluate-newest", "evaluate-new", "evaluate-old"]
    folder = stage_dir / "rollouts" / "engine1"
    assert prepare_rollouts(folder, {"base": "same"}, earlier) == {"base": earlier[1]}
    assert list_ids(folder) == ["new/greedy/0@base"]
    assert list_ids(earlier[1]) == ["new/greedy/0@base"]
    assert prepare_rollouts(folder, {"base": "same"}, earlier) == {}  # it is gone on with
    assert list_ids(folder) == ["new/greedy/0@base"]


def test_of_policies_that_shared_an_engine_those_that_are_the_same_are_copied(tmp_path: Path) -> None:
    first = make_rollouts(tmp_path / "first", {"base": "1", "sft": "2", "dpo": "3"}, "first")
    second = make_rollouts(tmp_path / "second", {"base": "1", "dpo": "5"}, "second")
    folder = tmp_path / "evaluate" / "rollouts" / "engine1"
    taken = prepare_rollouts(folder, {"base": "1", "sft": "4", "dpo": "3"}, [second, first])
    assert taken == {"base": second, "dpo": first}
    assert list_ids(folder) == ["first/greedy/0@dpo", "second/greedy/0@base"]


def test_a_damaged_file_is_not_copied(tmp_path: Path) -> None:
    earlier = make_rollouts(tmp_path / "earlier", {"base": "1"})
    [path] = journal.list_files(earlier, "trajectories")
    path.write_bytes(path.read_bytes()[:-1])
    assert prepare_rollouts(tmp_path / "rollouts", {"base": "1"}, [earlier]) == {"base": earlier}
    assert list_ids(tmp_path / "rollouts") == []


def test_a_copy_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    folder = make_rollouts(tmp_path / "evaluate" / "rollouts" / "engine1", {"base": "same"})
    (folder / "policies.json").unlink()
    assert prepare_rollouts(folder, {"base": "same"}, []) == {}
    assert list_ids(folder) == []


@pytest.mark.parametrize("mark", [None, "[]", "{", '{"base": 1}'])
def test_a_mark_that_cannot_be_read_is_nobodys(tmp_path: Path, mark: str | None) -> None:
    other = make_rollouts(tmp_path / "_previous" / "evaluate-x" / "rollouts" / "engine1", {"base": "same"})
    (other / "policies.json").unlink()
    if mark is None:
        (other / "policies.json").mkdir()
    else:
        artifacts.write_text(other / "policies.json", mark)
    earlier = list_earlier(tmp_path / "evaluate")
    assert prepare_rollouts(tmp_path / "evaluate" / "rollouts" / "engine1", {"base": "same"}, earlier) == {}
