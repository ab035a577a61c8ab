"""What a run has cost, and what a larger collection would."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evaluation_cases import build_questions, build_rollouts
from finished_cases import finish_evaluation

import drag_ray
from drag_ray.cli.main import main
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity

COLLECTED = {"questions": 200, "rollouts": 800, "questions_with_success": 50, "cost": 1.0}


def finish(run_dir: Path, stage: str, counts: dict[str, Any], spent: dict[str, float]) -> None:
    with StageFolder(run_dir / stage, Identity(stage, {}, {})) as folder:
        folder.finish(counts, spent=spent)


def test_stages_are_added_up_and_a_question_has_its_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish(tmp_path, "index", {"questions": 200}, {})
    finish(tmp_path, "collect", COLLECTED, {"gpu_hours": 2.0, "cpu_hours": 32.0, "cost": 5.0})
    finish(tmp_path, "finetune", {}, {"gpu_hours": 1.0, "cpu_hours": 16.0, "cost": 2.5})
    assert main(["cost", str(tmp_path), "--questions", "1000"]) == 0
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "GPU hours CPU hours machines replies",
        "collect 2 32 5 1",
        "finetune 1 16 2.5 0",
        "all 3 48 7.5 1",
        "collect: 200 questions, 0.03 a question; 50 are solved, 0.12 each",
        "collect of 1,000 questions, at most, as the start of the engines counts as often: 10 GPU hours, 160 CPU hours, 30",
    ]
    assert main(["cost", str(tmp_path), "--questions", "1000", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [stage["address"] for stage in told["stages"]] == ["collect", "finetune"]
    assert [(stage["machines"], stage["replies"], stage["solved"]) for stage in told["forecasts"]] == [(25.0, 5.0, 250)]


def test_a_program_reads_the_same_costs(tmp_path: Path) -> None:
    finish(tmp_path, "collect", COLLECTED, {"gpu_hours": 2.0, "cpu_hours": 32.0, "cost": 5.0})
    [collect] = drag_ray.open_run(tmp_path).read_costs()
    assert (collect.address, collect.total, collect.forecast(1000).total) == ("collect", 6.0, 30.0)


def test_policies_of_an_evaluation_share_its_cost_by_the_seconds_of_their_rollouts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = {"question": [1, 1, 1, 1], "base": [1, None, None, None], "tuned": [1, 1, None, None]}
    seconds = {"question": 0.0, "base": 1.0, "tuned": 3.0}
    rollouts = {
        policy: [replace(rollout, duration_s=seconds[policy]) for rollout in some]
        for policy, some in build_rollouts(ranks).items()
    }
    finish_evaluation(tmp_path / "evaluate", rollouts, build_questions(4), spent={"gpu_hours": 2.0, "cost": 8.0})
    assert main(["cost", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "evaluate: base solved 1 questions, 2 each for machines",
        "evaluate: tuned solved 2 questions, 3 each for machines",
    ]
    [evaluate] = drag_ray.open_run(tmp_path).read_costs()
    assert [(policy.policy, policy.machines, policy.solved) for policy in evaluate.policies] == [
        ("base", 2.0, 1),
        ("tuned", 6.0, 2),
    ]


def test_where_nothing_was_noted_it_is_said_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish(tmp_path, "collect", {**COLLECTED, "cost": 0}, {})
    assert main(["cost", str(tmp_path)]) == 1
    assert "--cost.gpu-hour" in capsys.readouterr().err
    finish(tmp_path, "finetune", {}, {"gpu_hours": 1.0, "cpu_hours": 0.0, "cost": 2.5})
    assert main(["cost", str(tmp_path), "--questions", "5"]) == 1
    assert "no finished collection has noted what it cost" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["cost", str(tmp_path), "--questions", "0"])
