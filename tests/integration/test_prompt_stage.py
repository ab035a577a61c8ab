"""Prompt optimisation with the real engine and the real model: killed, gone on with, and compared in an evaluation."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import psutil
import pytest
from small_index import finish_index
from waiting import wait_until

from drag_ray.prompt.outcome import read_prompt
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity, require_manifest
from drag_ray.types import Evidence, Page, Question

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
WORDS = ("rotor", "spar", "valve", "pump", "flap", "wheel", "wing", "fuel", "brake", "nozzle", "cabin", "hinge")
NUM_COLLECTED = 28
OPTIONS = [
    *("--config", "jobs/configs/demo.toml", "--engine.device", "cpu", "--agent.max-tokens", "12", "--cluster.num-cpus", "2"),
    *("--prompt.validation-questions", "4", "--prompt.minibatch-size", "2", "--prompt.max-tokens", "48"),
]


def finish_inputs(run_dir: Path) -> None:
    """An index of a page for each word, and a collection that says how many rollouts it has made."""
    pages = [Page("a.pdf", number, len(WORDS), f"The {word} of a plane turns.") for number, word in enumerate(WORDS, start=1)]
    questions = [
        Question(f"q{number}", f"Does part {number} turn?", (Evidence("a.pdf", number),), split=split)
        for split, numbers in (("train", range(1, 10)), ("test", range(10, 13)))
        for number in numbers
    ]
    finish_index(run_dir, pages, questions)
    with StageFolder(run_dir / "collect", Identity("collect", {}, {})) as folder:
        folder.finish({"finished": NUM_COLLECTED - 3, "hinted": 3})


def start(job: str, run_dir: Path, log: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, f"jobs/{job}.py", *OPTIONS[:8], *options, "--run-dir", str(run_dir)]
    return subprocess.Popen(command, cwd=ROOT, stdout=log.open("wb"), stderr=subprocess.STDOUT, start_new_session=True)


def read_journal(run_dir: Path) -> list[str]:
    path = run_dir / "prompt" / "journal.jsonl"
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], str]:
    """The run, its journal when the stage was killed, and what the second start said."""
    folder = tmp_path_factory.mktemp("prompt")
    run_dir = folder / "run"
    finish_inputs(run_dir)
    process = start("prompt", run_dir, folder / "first.log", *OPTIONS[8:])
    wait_until(lambda: process.poll() is not None or len(read_journal(run_dir)) >= 3, 400)
    assert process.poll() is None, (folder / "first.log").read_text()[-3000:]
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (run_dir / "prompt" / "prompt.json").exists()
    kept = read_journal(run_dir)
    process = start("prompt", run_dir, folder / "second.log", *OPTIONS[8:])
    children: list[psutil.Process] = []
    while process.poll() is None:
        children = psutil.Process(process.pid).children(recursive=True) or children
        time.sleep(0.5)
    log = (folder / "second.log").read_text(errors="replace")
    assert process.returncode == 0, log[-5000:]
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []
    return run_dir, kept, log


def test_an_optimisation_goes_on_and_takes_as_many_rollouts_as_were_collected(finished_run: tuple[Path, list[str], str]) -> None:
    run_dir, kept, log = finished_run
    prompt = read_prompt(run_dir / "prompt")
    counts = require_manifest(run_dir / "prompt").counts
    journal = read_journal(run_dir)
    assert journal[: len(kept)] == kept
    answers = [json.loads(line)[1] for line in journal]
    batches = [answer for answer in answers if isinstance(answer, list)]
    assert sum(map(len, batches)) == prompt.rollouts == counts["rollouts"]
    assert NUM_COLLECTED - 8 < prompt.rollouts <= prompt.max_rollouts == NUM_COLLECTED
    assert len(batches[0]) == 4  # the validation questions, with the agent's own instructions
    assert prompt.own_score == pytest.approx(sum(outcome["score"] for outcome in batches[0]) / 4)
    assert prompt.score >= prompt.own_score
    assert "rollouts were finished already" in log
    rows = [json.loads(line) for line in (run_dir / "prompt" / "candidates.jsonl").read_text().splitlines()]
    assert rows[0]["instructions"] == prompt.own_instructions
    assert len(rows) == 1 + prompt.proposals
    assert prompt.instructions in [row["instructions"] for row in rows]
    assert prompt.proposals >= 1  # the questions alone find all pages equally well, so there is something to improve
    assert prompt.failed_rollouts == 0


def test_a_finished_optimisation_is_skipped_and_a_lost_prompt_costs_no_rollout(
    finished_run: tuple[Path, list[str], str], tmp_path: Path
) -> None:
    run_dir = finished_run[0]
    expected, journal = (run_dir / "prompt" / "prompt.json").read_text(), read_journal(run_dir)
    for damage, said in ((False, "prompt: unchanged, skipped"), (True, "rollouts were finished already")):
        if damage:
            (run_dir / "prompt" / "prompt.json").write_text('{"instructions": "Wri')
        process = start("prompt", run_dir, tmp_path / "log", *OPTIONS[8:])
        assert process.wait(timeout=120) == 0
        assert said in (tmp_path / "log").read_text()
    assert (run_dir / "prompt" / "prompt.json").read_text() == expected
    assert read_journal(run_dir) == journal


def test_the_prompted_model_is_compared_at_equal_terms(finished_run: tuple[Path, list[str], str], tmp_path: Path) -> None:
    run_dir = finished_run[0]
    process = start(
        "evaluate", run_dir, tmp_path / "log", "--evaluate.baselines", "question", "--evaluate.question-weights", "[]"
    )
    assert process.wait(timeout=400) == 0, (tmp_path / "log").read_text()[-5000:]
    results = pl.read_ndjson(run_dir / "evaluate" / "results.jsonl")
    assert results["policy"].value_counts().sort("policy").rows() == [("base", 3), ("prompted", 3), ("question", 3)]
    comparison = json.loads((run_dir / "evaluate" / "comparison.json").read_text())
    assert (comparison["baseline"], comparison["subject"]) == ("base", "prompted")
    prompt = read_prompt(run_dir / "prompt")
    asked = {}
    for name in ("base", "prompted"):
        rollouts = (
            pl.read_parquet(run_dir / "evaluate/rollouts/engine1/trajectories/*.parquet").unnest("provenance").filter(policy=name)
        )
        assert set(rollouts["preset"]) == {"greedy"}
        asked[name] = {row["question_id"]: json.loads(row["messages"])[:-1] for row in rollouts.iter_rows(named=True)}
    assert asked["base"].keys() == asked["prompted"].keys()
    for question, messages in asked["prompted"].items():
        own = asked["base"][question]
        assert messages[0]["content"].startswith(prompt.instructions + "\n\n")
        assert own[0]["content"].removeprefix(prompt.own_instructions) == messages[0]["content"].removeprefix(prompt.instructions)
        assert messages[1:] == own[1:]
    assert "the base model with the best instructions that GEPA found" in (run_dir / "evaluate" / "report.html").read_text()
