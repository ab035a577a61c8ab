"""A judge on an engine of this machine: the stages that ask one, with a model that always says the same."""

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
import torch
from chat_server import Answer, serve_chat
from factories import build_answer, build_search, build_trajectory
from small_index import finish_index
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from drag_ray import schemas
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity, require_manifest
from drag_ray.types import Evidence, Page, Question

ROOT = Path(__file__).parents[3]
VERDICT = '{"verdict": "partial"}'
ANSWER = "about 340 a minute"
QUESTION = Question("q1", "What limits the rotor?", (Evidence("a.pdf", 1),), ("340 rpm",), split="test")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model whose every reply is VERDICT: each of its tokens, and the end of the prompt, leads to the next one."""
    folder = tmp_path_factory.mktemp("models") / "partial"
    tokenizer = AutoTokenizer.from_pretrained(embedded_model_dir())
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": ""}], add_generation_prompt=True, return_dict=True)
    said: list[int] = tokenizer(VERDICT, add_special_tokens=False)["input_ids"]
    chain = [prompt["input_ids"][-1], *said, tokenizer.eos_token_id]
    assert len(set(chain)) == len(chain)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
    )
    judge = LlamaForCausalLM(config)
    with torch.no_grad():
        for weight in judge.parameters():
            weight.zero_()  # so that a layer adds nothing to what a token is
        judge.model.norm.weight.fill_(1)
        for place, (token, following) in enumerate(itertools.pairwise(chain)):
            judge.model.embed_tokens.weight[token, place] = 1
            judge.lm_head.weight[following, place] = 10
    judge.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def run_stage(stage: str, run_dir: Path, judge: str, model: str, *options: str) -> Any:
    """The counts of a stage with this judge, and its judgements."""
    engine = {"model": model, "dtype": "float32", "max_model_len": 2048, "enforce_eager": True}
    judged = (f"--{judge}.enabled", f"--{judge}.engine", json.dumps(engine), "--cluster.num-cpus", "2")
    command = [sys.executable, f"jobs/{stage}.py", "--run-dir", str(run_dir), *judged, *options]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    lines = (run_dir / stage / "judge" / "judgements.jsonl").read_text().splitlines()
    return require_manifest(run_dir / stage).counts, [json.loads(line) for line in lines]


@pytest.mark.slow
def test_answers_that_are_to_be_trained_on_are_judged(model: str, tmp_path: Path) -> None:
    question = replace(QUESTION, split="train")
    records = [
        build_trajectory(build_search("rotor", 1), build_answer(answer), question=question, task="answer", sample_index=number)
        for number, answer in enumerate((ANSWER, "340 rpm"))
    ]
    finish_index(tmp_path, [Page("a.pdf", 1, 1, "rotor")], [question])
    with StageFolder(tmp_path / "collect", Identity("collect", {}, {})) as folder:
        (folder.path / "trajectories").mkdir()
        pq.write_table(schemas.to_table(records, schemas.TRAJECTORIES), folder.path / "trajectories" / "part-0.parquet")
        folder.finish({})
    counts, judgements = run_stage("process", tmp_path, "process.judge", model, "--process.reward", "opensearch_vl")
    # The queries are judged too, in another form than this model knows.
    assert {(one["answer"], one["reply"], one["verdict"]) for one in judgements} == {
        (ANSWER, VERDICT, "partial"),
        ("rotor", VERDICT, ""),
    }
    assert (counts["judged_answers"], counts["unjudged"], counts["unjudged_queries"]) == (1, 0, 2)
    rows = pl.read_parquet(tmp_path / "process" / "trajectories" / "*.parquet")
    assert rows.sort("trajectory_id")["reward"].to_list() == [0.5, 1]


@pytest.mark.slow
def test_answers_of_an_evaluation_are_judged(model: str, tmp_path: Path) -> None:
    finish_index(tmp_path, [Page("a.pdf", 1, 1, "rotor")], [QUESTION])

    def answer(body: dict[str, Any], number: int) -> Answer:
        return Answer("<search>rotor" if len(body["messages"]) == 2 else f"<answer>{ANSWER}")

    with serve_chat(answer) as served:
        policy = ("--engine.backend", "openai", "--engine.model", "teacher", "--engine.endpoint.address", served.address)
        agent = ("--agent.task", "answer", "--agent.max-iterations", "2")
        counts, judgements = run_stage("evaluate", tmp_path, "evaluate.judge", model, *policy, *agent)
    assert [(one["answer"], one["verdict"]) for one in judgements] == [(ANSWER, "partial")]
    assert (counts["judged"], counts["unjudged"]) == (1, 0)
    results = pl.read_ndjson(tmp_path / "evaluate" / "results.jsonl")
    assert results.filter(policy="base")["semantic"].to_list() == [0.5]
