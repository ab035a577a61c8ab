"""The whole loop at a tiny size with the real engine and the real model."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest
from notebook_cells import run_cells
from ports import list_ports
from python_examples import list_documented, run_examples
from small_run import write_candidates

from drag_ray import schemas
from drag_ray.agent.record import AgentRecord, read_record
from drag_ray.api.agent import Agent
from drag_ray.api.run import Run
from drag_ray.config import load
from drag_ray.evaluate.evaluation_folder import read_outcome
from drag_ray.evaluate.question_result import to_line
from drag_ray.evaluate.results import compute_results
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.stages import APART, STAGES
from drag_ray.rollout.journal import read_trajectories
from drag_ray.search.index import read_fingerprint
from drag_ray.storage.artifacts import PREVIOUS_DIR_NAME
from drag_ray.transcripts.transcript import Transcript
from drag_ray.types import Trajectory

pytestmark = pytest.mark.timeout(1800)  # the first test waits for the whole run
ROOT = Path(__file__).parents[3]
LOOP = [name for name, stage in STAGES.items() if not stage.switch and name not in APART]
NUM_QUESTIONS = 5
NUM_ROLLOUTS = NUM_QUESTIONS * (3 + 4 + 1 + 4)  # samples, draws of key words, RM3 and draws of neighbours
DEMO = ["--config", "jobs/configs/demo.toml"]


SMALLER = {
    "[agent]\n": "[agent]\npage_chars = 200\n",
    "epochs = 2": "epochs = 1",
    "limit = 12": "limit = 4",
    "limit = 8": f"limit = {NUM_QUESTIONS}",
}
"""What is written into the small configuration, and in place of what: CPUs spend most of its time on prompts."""


def write_config(folder: Path) -> Path:
    """The small configuration, made smaller."""
    text = (ROOT / "jobs" / "configs" / "small.toml").read_text()
    for written, smaller in SMALLER.items():
        assert text.count(written) == 1
        text = text.replace(written, smaller)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "small.toml").write_text(text)
    return folder / "small.toml"


def start(run_dir: Path, log: Path) -> subprocess.Popen[bytes]:
    config = write_config(run_dir.parent / "jobs" / "configs")
    command = [sys.executable, "jobs/pipeline.py", "--config", str(config), "--run-dir", str(run_dir)]
    return subprocess.Popen(command, cwd=ROOT, stdout=log.open("wb"), stderr=subprocess.STDOUT, start_new_session=True)


def watch_ports(process: subprocess.Popen[bytes], timeout_s: float) -> set[str]:
    """Wait for a run to end; the ports of it that other machines could reach meanwhile."""
    deadline = time.monotonic() + timeout_s
    reachable = set()
    while process.poll() is None:
        assert time.monotonic() < deadline, "the run did not end in time"
        ports = list_ports(psutil.Process(process.pid))
        reachable |= {f"{port.process.name()} {port.address}" for port in ports if port.address != "127.0.0.1"}
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=4)  # to look at all its processes takes a good part of a second of what it could do itself
    return reachable


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of all stages."""
    folder = tmp_path_factory.mktemp("pipeline")
    process = start(folder / "run", folder / "run.log")
    reachable = watch_ports(process, timeout_s=1500)
    assert process.returncode == 0, (folder / "run.log").read_text(errors="replace")[-5000:]
    assert reachable == set()  # of all stages: engines and training too
    return folder / "run"


def test_every_stage_finished(finished_run: Path) -> None:
    for name in LOOP:
        assert (finished_run / name / "manifest.json").is_file()
    assert len(set(read_trajectories(finished_run / "collect")["id"].to_pylist())) == NUM_ROLLOUTS


def test_an_engine_serves_all_stages_that_ask_its_model(finished_run: Path) -> None:
    started = re.findall(r"engines: starting 1 with (\S+),", finished_run.with_name("run.log").read_text(errors="replace"))
    assert started == ["embedded", str(finished_run / "finetune" / "merged")]


def read_drawn(run_dir: Path) -> list[Trajectory]:
    """The trajectories that the model wrote; the others are proposals of baselines."""
    rows = read_trajectories(run_dir / "collect").to_pylist()
    return [trajectory for trajectory in map(schemas.to_trajectory, rows) if not trajectory.provenance.baseline]


def test_proposals_are_one_search_each_with_the_models_own_opening(finished_run: Path) -> None:
    trajectories = list(map(schemas.to_trajectory, read_trajectories(finished_run / "collect").to_pylist()))
    openings = {
        t.question_id: json.loads(t.messages)[: t.turns[0].num_prompt_messages] for t in trajectories if not t.provenance.baseline
    }
    proposals = [trajectory for trajectory in trajectories if trajectory.provenance.baseline]
    assert {trajectory.provenance.baseline for trajectory in proposals} == {"question_keywords", "rm3", "neighbours"}
    for trajectory in proposals:
        assert len(trajectory.turns) == 1
        assert json.loads(trajectory.messages)[:-1] == openings[trajectory.question_id]


def test_the_adapter_says_how_it_is_asked_as_the_collection_did(finished_run: Path, tmp_path: Path) -> None:
    adapter_dir = finished_run / "finetune" / "adapter"
    agent = load(RunConfig, ["--config", str(write_config(tmp_path)), "--run-dir", str(finished_run)]).agent
    assert (agent.question_weight, agent.max_iterations, len(agent.examples)) == (3, 3, 3)
    fingerprint = read_fingerprint(finished_run / "index" / "search_index")
    assert read_record(adapter_dir, agent) == AgentRecord(agent=agent, preset="greedy", index_fingerprint=fingerprint)


def test_trajectories_hold_what_the_engine_saw(finished_run: Path) -> None:
    from transformers import AutoTokenizer

    from drag_ray.engine.models.embedded import embedded_model_dir
    from drag_ray.engine.models.tokens import disarm

    tokenizer = AutoTokenizer.from_pretrained(embedded_model_dir())
    trajectories = read_drawn(finished_run)
    assert any(len(trajectory.turns) == 3 for trajectory in trajectories)
    for trajectory in trajectories:
        messages = json.loads(trajectory.messages)
        for turn in trajectory.turns:
            prompt = tokenizer.apply_chat_template(
                disarm(messages[: turn.num_prompt_messages], tokenizer), add_generation_prompt=True, tokenize=False
            )
            assert tokenizer.decode(turn.reply.prompt_token_ids) == prompt
            assert turn.raw_text in tokenizer.decode(turn.reply.completion_token_ids)


def test_log_probabilities_are_those_of_the_model(finished_run: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from drag_ray.engine.models.embedded import embedded_model_dir

    model = AutoModelForCausalLM.from_pretrained(embedded_model_dir(), dtype=torch.float32)
    trajectories = read_drawn(finished_run)[:1]
    differences = []
    for turn in (turn for trajectory in trajectories for turn in trajectory.turns):
        ids = torch.tensor([[*turn.reply.prompt_token_ids, *turn.reply.completion_token_ids]])
        with torch.no_grad():
            scores = model(ids).logits[0, len(turn.reply.prompt_token_ids) - 1 : -1].log_softmax(-1)
        expected = scores.gather(1, torch.tensor(turn.reply.completion_token_ids)[:, None])[:, 0]
        differences.append((expected - torch.tensor(turn.reply.completion_logprobs)).abs())
    # The engine computes in bfloat16: single tokens may be off by some tenths, their mean may not.
    assert torch.cat(differences).mean() < 0.15


def test_the_report_compares_all_policies_on_the_same_questions(finished_run: Path) -> None:
    evaluate_dir = finished_run / "evaluate"
    results = pl.read_ndjson(evaluate_dir / "results.jsonl")
    assert set(results["policy"]) == {"question", "base", "tuned"}
    assert results.group_by("policy").agg(pl.col("question_id").n_unique())["question_id"].to_list() == [4, 4, 4]
    questions = pl.read_parquet(finished_run / "index" / "questions.parquet")
    test_ids = set(questions.filter(pl.col("split") == "test")["id"])
    assert set(results["question_id"]) <= test_ids
    assert "<html" in (evaluate_dir / "report.html").read_text()
    counts = json.loads((evaluate_dir / "manifest.json").read_text())["counts"]
    first_hits = results.filter(pl.col("first_search_rank") <= pl.col("top_k"))["policy"].value_counts()
    assert {name: counts[f"first_hits_{name}"] for name in first_hits["policy"]} == dict(first_hits.iter_rows())


def test_scoring_again_without_a_model_gives_what_was_recorded(finished_run: Path) -> None:
    outcome = read_outcome(finished_run)
    results = compute_results(outcome.trajectories, outcome.questions)
    recorded = [json.loads(line) for line in (outcome.path / "results.jsonl").read_text().splitlines()]
    assert {row["policy"] for row in recorded} == set(results)
    again = [{"policy": name, **to_line(result)} for name, rows in results.items() for result in rows]
    # Seconds are recorded in half the digits.
    assert [row | {"duration_s": 0} for row in recorded] == [row | {"duration_s": 0} for row in json.loads(json.dumps(again))]


def test_training_saw_no_test_question(finished_run: Path) -> None:
    trained = {
        json.loads(line)["question_id"] for line in (finished_run / "format/sft_query/train.jsonl").read_text().splitlines()
    }
    evaluated = set(pl.read_ndjson(finished_run / "evaluate" / "results.jsonl")["question_id"])
    assert trained
    assert not trained & evaluated


@pytest.mark.slow
def test_validation_questions_are_asked_without_the_test_questions(finished_run: Path, tmp_path: Path) -> None:
    for name in ("index", "format", "finetune"):
        (tmp_path / name).symlink_to(finished_run / name)
    options = ["--evaluate.split", "validation", "--evaluate.baselines", "question", "--evaluate.question-weights", "[]"]
    command = [sys.executable, "jobs/evaluate.py", *DEMO, "--run-dir", str(tmp_path), *options]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert finished.returncode == 0, finished.stderr[-3000:]
    assert "VALIDATION questions" in finished.stdout
    sides = pl.read_parquet(tmp_path / "format" / "questions.parquet")
    asked = pl.read_ndjson(tmp_path / "evaluate" / "results.jsonl")
    assert set(asked["question_id"]) == set(sides.filter(pl.col("side") == "validation")["question_id"])
    assert set(asked["policy"]) == {"question", "base", "tuned"}
    assert json.loads((tmp_path / "evaluate" / "comparison.json").read_text())["split"] == "validation"


def test_a_second_start_skips_everything(finished_run: Path, tmp_path: Path) -> None:
    process = start(finished_run, tmp_path / "third.log")
    assert process.wait(timeout=120) == 0
    log = (tmp_path / "third.log").read_text()
    assert [f"{name}: unchanged, skipped" in log for name in LOOP] == [True] * len(LOOP)


@pytest.fixture(scope="module")
def beside_the_run(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A working directory in which the run has the name that the documentation gives it.

    Who opens an agent there that is open already gets that one, and all are closed in the end: an engine takes long to start.
    """
    folder = tmp_path_factory.mktemp("documented")
    (folder / "runs").mkdir()
    (folder / "runs" / "small").symlink_to(finished_run)
    write_config(folder / "jobs" / "configs")
    write_candidates(folder / "candidates.jsonl")
    opened: dict[str, Agent] = {}
    open_agent, close = Run.open_agent, Agent.close

    @wraps(open_agent)
    def find_agent(run: Run, **options: Any) -> Agent:
        key = json.dumps(options, sort_keys=True)
        if key not in opened:
            opened[key] = open_agent(run, **options)
        return opened[key]

    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setattr(Run, "open_agent", find_agent)
        patched.setattr(Agent, "close", wraps(close)(lambda agent: None))
        yield
    for agent in opened.values():
        agent.close()


@pytest.mark.usefixtures("beside_the_run")
def test_the_examples_of_the_python_api_do_what_they_say(finished_run: Path) -> None:
    assert run_examples(list_documented()) == {}
    assert not (finished_run / PREVIOUS_DIR_NAME).exists()  # no stage ran again, which would take minutes


@pytest.mark.usefixtures("beside_the_run")
def test_the_cells_of_the_notebook_run(finished_run: Path) -> None:
    transcripts = [item for item in run_cells(with_engine=True) if isinstance(item, Transcript)]
    assert [transcript.trajectory.error for transcript in transcripts] == ["", ""]
    assert not (finished_run / PREVIOUS_DIR_NAME).exists()
