"""Stages whose engine is an endpoint: a spent budget ends a collection, a larger one goes on; an evaluation and its judge."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from chat_server import Answer, ChatServer, serve_chat
from embedding_models import write_embedding_model, write_page_vectors
from process_environments import ENDPOINT_KEY
from small_index import finish_index

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.baselines.dense import Hybrid
from drag_ray.rollout import journal
from drag_ray.search.searcher import Searcher
from drag_ray.storage.artifacts import require_manifest
from drag_ray.types import Evidence, Page, Question

ROOT = Path(__file__).parents[3]
WORDS = ("rotor", "spar", "valve", "pump", "flap", "wheel")
NUM_TRAIN = 4
NUM_ROLLOUTS = 4 * NUM_TRAIN
[(KEY_VARIABLE, KEY)] = ENDPOINT_KEY.items()
PRICES = ("--engine.endpoint.prompt-price", "1000", "--engine.endpoint.completion-price", "1000")
"""With 110 tokens a reply costs 0.11."""


def answer(body: dict[str, Any], number: int) -> Answer:
    """The larger model knows the word that each question is about; the judge takes any answer that has it."""
    if body["model"] == "judge":
        request = body["messages"][0]["content"]
        case = json.loads(request[request.index("{\n") : request.rindex("}\n\nReply") + 1])
        is_right = any(word in case["answer_to_judge"] for word in case["right_answers"])
        return Answer(json.dumps({"verdict": "correct" if is_right else "incorrect"}))
    asked = int(re.findall(r"part (\d+)", body["messages"][1]["content"])[-1])
    word = WORDS[asked - 1] if body["model"] == "larger" else "plane"
    return Answer(f"<search>{word}" if len(body["messages"]) == 2 else f"<answer>that is a {word}", seconds=0.02)


@pytest.fixture(scope="module")
def served() -> Iterator[ChatServer]:
    with serve_chat(answer) as served:
        yield served


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    pages = [Page("a.pdf", number, len(WORDS), f"The {word} of a plane.") for number, word in enumerate(WORDS, start=1)]
    questions = [
        Question(f"q{number}", f"What is part {number}?", (Evidence("a.pdf", number),), (WORDS[number - 1],), split=split)
        for split, numbers in (("train", range(1, NUM_TRAIN + 1)), ("test", range(NUM_TRAIN + 1, len(WORDS) + 1)))
        for number in numbers
    ]
    finish_index(folder, pages, questions)
    return folder


Start = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def start(ray_address: str) -> Start:
    """Runs a stage, as a job on a Ray whose processes have the key, with an endpoint as its engine."""
    return partial(_start, ray_address)


def _start(ray_address: str, stage: str, run_dir: Path, served: ChatServer, *options: str) -> subprocess.CompletedProcess[str]:
    engine = ("--engine.backend", "openai", "--engine.model", "teacher", "--engine.endpoint.address", served.address)
    common = ("--engine.endpoint.key-variable", KEY_VARIABLE, "--agent.max-iterations", "1", "--cluster.address", ray_address)
    command = [sys.executable, f"jobs/{stage}.py", "--run-dir", str(run_dir), *engine, *common, *options]
    environment = {**os.environ, **ENDPOINT_KEY}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def test_a_spent_budget_keeps_what_is_finished_and_a_larger_one_goes_on(start: Start, run_dir: Path, served: ChatServer) -> None:
    limits = ("--engine.endpoint.max-requests", "2", *PRICES)
    stopped = start("collect", run_dir, served, *limits, "--engine.endpoint.budget", "0.5")
    assert stopped.returncode == 1, stopped.stderr[-3000:]
    assert "BudgetError" in stopped.stderr
    assert "the budget is 0.5. Finished work is kept" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    num_asked = len(served.asked)
    assert 5 <= num_asked <= 6  # five replies cost 0.55; the sixth was under way
    assert len(journal.read_finished_ids(run_dir / "collect")) == num_asked
    done = start("collect", run_dir, served, *limits, "--engine.endpoint.budget", "50")
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"{num_asked} of {NUM_ROLLOUTS} rollouts are finished already" in done.stdout
    assert len(served.asked) == NUM_ROLLOUTS
    assert set(served.keys) == {f"Bearer {KEY}"}
    counts = require_manifest(run_dir / "collect").counts
    assert counts["cost"] == pytest.approx(0.11 * NUM_ROLLOUTS)
    assert (counts["prompt_tokens"], counts["completion_tokens"]) == (100 * NUM_ROLLOUTS, 10 * NUM_ROLLOUTS)
    rows = journal.read_trajectories(run_dir / "collect").to_pylist()
    assert all(
        turn["reply"]["prompt_token_ids"] == turn["reply"]["completion_token_ids"] == [] for row in rows for turn in row["turns"]
    )
    assert not [path for path in run_dir.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def test_a_model_behind_an_endpoint_calls_the_tools_of_a_local_one(start: Start, run_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(run_dir / "index", tmp_path / "index")
    replies = [
        render_call("search_documents", {"query": "plane"}),
        render_call("grep", {"file": "a.pdf", "text": "wheel"}),
        get_protocol("tools").render_answer("a wheel", (Evidence("a.pdf", 6),)),
    ]

    def call(body: dict[str, Any], number: int) -> Answer:
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        return Answer(replies[turn].removesuffix("</tool_call>"))

    with serve_chat(call) as served:
        tools = ("--agent.protocol", "tools", "--agent.tools", "search", "--agent.tools", "grep", "--agent.max-iterations", "4")
        done = start("collect", tmp_path, served, *tools, "--collect.samples-per-question", "1")
    assert done.returncode == 0, done.stderr[-3000:]
    rows = journal.read_trajectories(tmp_path / "collect").to_pylist()
    assert [[turn["action"] for turn in row["turns"]] for row in rows] == [["search", "tool", "answer"]] * NUM_TRAIN
    assert {(row["turns"][1]["call"]["tool"], row["turns"][1]["call"]["error"]) for row in rows} == {("grep", "")}
    shown = [function["function"]["name"] for function in json.loads(rows[0]["tools"])]
    assert shown == ["search_documents", "grep", "provide_answer"]
    last = max((body["messages"] for body in served.asked), key=len)
    assert [message["role"] for message in last] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert all(json.dumps(name) in last[0]["content"] for name in shown)
    assert last[5]["content"].startswith("<tool_response>\n1 line with 'wheel' in a.pdf")
    assert not any("tools" in body for body in served.asked)


def test_other_models_are_compared_at_their_own_prices_and_judged_by_another(
    start: Start, run_dir: Path, served: ChatServer
) -> None:
    larger, judge = (
        {"backend": "openai", "model": name, "endpoint": {"address": served.address, "prompt_price": price}}
        for name, price in (("larger", 2000), ("judge", 500))
    )
    models = ("--evaluate.models", json.dumps({"larger": larger}))
    judged = ("--evaluate.judge.enabled", "--evaluate.judge.engine", json.dumps(judge), "--agent.max-iterations", "2")
    done = start("evaluate", run_dir, served, *PRICES, *models, *judged)
    assert done.returncode == 0, done.stderr[-3000:]
    results = pl.read_ndjson(run_dir / "evaluate" / "results.jsonl")
    assert results["policy"].unique(maintain_order=True).to_list() == ["question", "base", "larger"]
    assert results.filter(policy="larger")["first_search_rank"].to_list() == [1, 1]
    assert {policy: rows["semantic"].to_list() for (policy,), rows in results.group_by("policy")} == {
        "question": [0, 0],
        "base": [0, 0],
        "larger": [1, 1],
    }
    comparison = json.loads((run_dir / "evaluate" / "comparison.json").read_text())
    assert (comparison["baseline"], comparison["subject"]) == ("question", "base")
    assert comparison["efforts"]["larger"]["cost_per_solved"]["value"] == pytest.approx(2 * 100 * 2000 / 1e6)
    assert "judged by judge" in (run_dir / "evaluate" / "report.html").read_text()
    counts = require_manifest(run_dir / "evaluate").counts
    assert (counts["judged"], counts["unjudged"]) == (4, 0)
    assert counts["cost"] == pytest.approx(4 * 0.11 + 4 * 0.2 + 4 * 0.05)


@pytest.mark.slow
def test_what_a_model_adds_is_searched_by_words_and_by_vectors_too(start: Start, tmp_path: Path, served: ChatServer) -> None:
    pages = [Page("a.pdf", number, len(WORDS), f"The {word} of a plane.") for number, word in enumerate(WORDS, start=1)]
    finish_index(tmp_path, pages, [Question("q2", "What is part 2?", (Evidence("a.pdf", 2),), split="test")])
    searcher = Searcher(tmp_path / "index" / "search_index")
    vectors = tmp_path / "index" / "vectors"
    write_page_vectors(searcher, write_embedding_model(tmp_path / "embedding"), vectors)
    options = ("--evaluate.baselines", '["question", "hybrid"]', "--agent.question-weight", "2", "--verify")
    done = start("evaluate", tmp_path, served, "--engine.model", "larger", *options)
    assert done.returncode == 0, done.stderr[-3000:]
    results = pl.read_ndjson(tmp_path / "evaluate" / "results.jsonl")
    assert results["policy"].to_list() == ["question", "hybrid", "base", "base+hybrid"]
    rollouts = pl.read_parquet(tmp_path / "evaluate" / "trajectories" / "scored.parquet")
    [[turn]] = rollouts.filter(pl.col("provenance").struct.field("policy") == "base+hybrid")["turns"].to_list()
    found = Hybrid(vectors).open_searcher(searcher).search_expanded("What is part 2?", "spar", 2, 10)
    assert [(hit["page_number"], hit["rank"]) for hit in turn["ranking"]["hits"]] == [
        (hit.page_number, hit.rank) for hit in found
    ]
    tokens = dict(results.select("policy", "num_completion_tokens").iter_rows())
    assert tokens["base+hybrid"] == tokens["base"] > 0
