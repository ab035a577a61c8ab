"""The tasks rerank and answer through the whole loop: a teacher behind an endpoint writes, the embedded model learns from it.

The embedded model writes neither an order nor an answer that can be read, until it has been taught to.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from chat_server import Answer, serve_chat

ROOT = Path(__file__).parents[3]
PARTS = ("rotor", "spar", "valve", "pump", "flap", "wheel", "lamp", "seat")
FACTS = ("speed", "weight", "colour")
NUM_TEST_PARTS = 2
OPTIONS = (
    *("--agent.max-tokens", "40", "--no-agent.thinking", "--engine.dtype", "bfloat16", "--engine.max-model-len", "1024"),
    *("--engine.enforce-eager", "--collect.samples-per-question", "2", "--rollout.flush-s", "0"),
    *("--format.formats", '["sft_trajectory", "rejection", "dpo"]', "--format.validation-fraction", "0.2", "--no-finetune.merge"),
    *("--finetune.sft.rows", "sft_trajectory", "--finetune.epochs", "6", "--evaluate.baselines", "question"),
    *("--cluster.num-cpus", "2"),
)


def write_documents(folder: Path) -> None:
    """A page for each fact of each part, and questions whose candidates are that and the same fact of other parts."""
    facts = [(part, number, fact) for part in PARTS for number, fact in enumerate(FACTS, start=1)]
    pages: list[dict[str, Any]] = []
    questions: list[dict[str, Any]] = []
    for place, (part, number, fact) in enumerate(facts):
        page = {"file": f"{part}.pdf", "page_number": number}
        pages.append({**page, "total_pages": len(FACTS), "text": f"The {fact} of the {part} is {part[::-1]}."})
        others = [facts[(place + len(FACTS) * step) % len(facts)] for step in (1, 2, 3)]
        candidates = [{"file": f"{other}.pdf", "page_number": at} for other, at, _ in others]
        candidates.insert(1 + place % 3, page)
        questions.append(
            {
                "id": f"{part}-{fact}",
                "question": f"What is the {fact} of the {part}?",
                "evidence": [page],
                "answers": [part[::-1]],
                "candidates": candidates,
                "split": "test" if part in PARTS[-NUM_TEST_PARTS:] else "train",
            }
        )
    folder.mkdir()
    (folder / "pages.jsonl").write_text("".join(json.dumps(page) + "\n" for page in pages))
    (folder.parent / "questions.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))


def order(body: dict[str, Any], number: int) -> Answer:
    """A good order of the window that was shown last; of every other sample the order that it had."""
    shown = body["messages"][-1]["content"]
    part = re.findall(r"of the (\w+)\?", shown)[-1]
    candidates = [(int(at), part in text) for at, text in re.findall(r"\((\d+)\) (.*)", shown)]
    best_first = sorted(candidates, key=lambda candidate: not candidate[1]) if number % 2 else candidates
    return Answer(f"<answer>{[at for at, _ in best_first]}")


def answer(body: dict[str, Any], number: int) -> Answer:
    """A search, then the answer; of every other sample a wrong one."""
    question = body["messages"][1]["content"]
    part = re.findall(r"of the (\w+)\?", question)[-1]
    if body["messages"][-1]["role"] == "user" and len(body["messages"]) > 2:
        return Answer(f"<answer>{part[::-1] if number % 3 else 'unknown'}")
    return Answer(f"<search>{part}")


def run_loop(folder: Path, teacher: Callable[[dict[str, Any], int], Answer], *options: str, in_curriculum: bool = False) -> Path:
    """The folder of a run through all stages; the teacher collects, in the first of its rounds where it has a curriculum."""
    write_documents(folder / "documents")
    given = ("--corpus.documents", str(folder / "documents"), "--corpus.questions", str(folder / "questions.jsonl"))
    with serve_chat(teacher) as served:
        engine = {"backend": "openai", "model": "teacher", "endpoint": {"address": served.address}}
        command = [sys.executable, "jobs/pipeline.py", "--run-dir", str(folder / "run"), *given, *OPTIONS, *options]
        first = json.dumps([{"collect": {"teacher": engine}}, {}])
        command += ["--curriculum", first] if in_curriculum else ["--collect.teacher", json.dumps(engine)]
        finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600, check=False)
    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-3000:]
    return folder / "run"


def read_actions(run_dir: Path, policy: str) -> set[str]:
    """The kinds of replies of a policy in the evaluation."""
    rollouts = pl.read_parquet(run_dir / "evaluate" / "rollouts" / "*" / "trajectories" / "*.parquet")
    rollouts = rollouts.filter(pl.col("provenance").struct.field("policy") == policy)
    assert rollouts.height == NUM_TEST_PARTS * len(FACTS)
    assert set(rollouts["error"]) == {""}
    return set(rollouts.explode("turns")["turns"].struct.field("action"))


def check_report(run_dir: Path, counted: str) -> None:
    """All rows of the policy that were written, and its report, whose verdict is about what the task counts."""
    counts = json.loads((run_dir / "format" / "manifest.json").read_text())["counts"]
    assert all(counts[f"{name}_train"] for name in ("sft_trajectory", "rejection", "dpo"))
    assert not any(counts[f"{name}_set_aside"] for name in ("sft_trajectory", "rejection", "dpo"))
    results = pl.read_ndjson(run_dir / "evaluate" / "results.jsonl")
    assert results["policy"].unique(maintain_order=True).to_list() == ["question", "base", "tuned"]
    verdict = json.loads((run_dir / "evaluate" / "comparison.json").read_text())["verdict"]
    assert "tuned" in verdict[0]
    assert f" {counted}" in verdict[0]
    assert verdict[0].split(":")[0] in (run_dir / "evaluate" / "report.html").read_text()


@pytest.mark.slow
def test_a_model_learns_to_put_candidates_in_order(tmp_path: Path) -> None:
    windows = json.dumps({"candidates": 4, "window": 3, "step": 1})
    agent = ("--agent.task", "rerank", "--agent.depth", "4", "--agent.top-k", "1", "--agent.rerank", windows)
    run_dir = run_loop(tmp_path, order, *agent)
    check_report(run_dir, "first hit")
    assert read_actions(run_dir, "base") == {"invalid"}
    assert read_actions(run_dir, "tuned") == {"search"}  # an order each


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_curriculum_goes_from_a_teachers_orders_by_its_own_best_ones_to_reinforcement_learning(tmp_path: Path) -> None:
    windows = json.dumps({"candidates": 4, "window": 3, "step": 1})
    agent = ("--agent.task", "rerank", "--agent.depth", "4", "--agent.top-k", "1", "--agent.rerank", windows)
    learning = ("--rl.steps", "2", "--rl.questions-per-step", "2", "--rl.samples-per-question", "4", "--rl.validation-steps", "2")
    limits = ("--rl.max-without-search", "1", "--finetune.learning-rate", "2e-4")
    stages = ("--rounds", "2", "--reinforce", "--process.reward", "v_retrver", *learning, *limits)
    run_dir = run_loop(tmp_path, order, *agent, *stages, in_curriculum=True)
    history = json.loads((run_dir / "rounds" / "history.json").read_text())
    best = max(history, key=lambda result: (result["tuned"]["mrr"], -result["number"]))["number"]
    identity = json.loads((run_dir / "rl" / "identity.json").read_text())
    assert identity["config"]["engine"]["adapter"] == str(run_dir / "rounds" / str(best) / "finetune" / "adapter")
    curve = pl.read_ndjson(run_dir / "rl" / "curve.jsonl").filter(pl.col("reward").is_not_null())
    assert curve["step"].to_list() == [1, 2]
    results = pl.read_ndjson(run_dir / "evaluate" / "results.jsonl")
    assert set(results["policy"]) == {"question", "base", "tuned", "rl"}
    assert read_actions(run_dir, "rl") == {"search"}


@pytest.mark.slow
def test_a_model_learns_to_search_and_then_to_answer(tmp_path: Path) -> None:
    agent = ("--agent.task", "answer", "--agent.max-iterations", "2", "--agent.top-k", "1", "--process.reward", "opensearch_vl")
    run_dir = run_loop(tmp_path, answer, *agent)
    check_report(run_dir, "right answer")
    assert read_actions(run_dir, "tuned") == {"search", "answer"}
