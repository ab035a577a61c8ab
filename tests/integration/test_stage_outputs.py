"""The output of each stage on small inputs is that of its version: one that changes raises the version in `stages.py`.

`stage_outputs.json` holds a hash of each column that a version of a stage wrote. After a change that was meant, raise the version
and write the file anew:

    WRITE_OUTPUTS=1 python -m pytest tests/integration/test_stage_outputs.py
"""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from chat_server import Answer, serve_chat

from drag_ray.config import load
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.engine.models.pretrained import load_tokenizer
from drag_ray.finetune.config import TrainJob
from drag_ray.finetune.training_rows import tokenize_training_rows
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_stages
from drag_ray.pipeline.stages import APART, STAGES
from drag_ray.search.searcher import Searcher

KEPT = Path(__file__).with_name("stage_outputs.json")
PARTS = ("rotor", "spar", "valve", "pump", "flap", "wheel", "wing", "brake", "nozzle", "cabin", "hinge", "strut")
VERBS = ("checked", "replaced", "stored")
METHODS = {"sft": "sft_query", "dpo": "dpo", "grpo": "rl_steps", "reward": "reward", "rerank": "relevance"}
"""A row format for each training method."""
OTHERS = ("sft_trajectory", "sft_context", "rejection")
VOLATILE = {"started_at", "duration_s", "generate_s", "search_s", "tool_s"}
"""Columns and keys that another run of the same work has otherwise."""
OF_THE_FOLDER = {"checksums.jsonl", "problems.jsonl", "spending.jsonl"}
"""What every stage's folder has."""
NOT_READ = {"documents.parquet"}
"""What nobody reads but the stage itself; it names files by their whole paths."""

Outputs = dict[str, dict[str, str]]
"""By file, a hash of each column or key."""


def write_documents(folder: Path) -> None:
    """A page of limits for each part, which is asked for, and pages that have more words of the questions."""
    folder.mkdir()
    texts = {
        "limits": "Limits of the {} in flight",
        **{verb: f"A {{}} is {verb} with care, the {{}} of a plane" for verb in VERBS},
    }
    for file, text in texts.items():
        pages = [{"file": file, "page": number, "text": text.format(part, part)} for number, part in enumerate(PARTS, start=1)]
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(page) + "\n" for page in pages))
    (folder / "tools.md").write_text("# Tools\n\nA tool *for* each part.\n")
    rows = "".join(f"<tr><td>{part}<td>{number} kg</tr>" for number, part in enumerate(PARTS))
    (folder / "weights.html").write_text(f"<h1>Weights</h1><table>{rows}</table>")


def write_questions(path: Path) -> None:
    asked = [
        {
            "id": f"{part}-limits",
            "question": f"How fast may the {part} of a plane be turned with care?",
            "gold": [["limits", number]],
            "answers": [part],
        }
        for number, part in enumerate(PARTS, start=1)
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in asked))


def answer(body: Mapping[str, Any], number: int) -> Answer:
    """A search for two words that are drawn by what was asked and how."""
    text = json.dumps([body["messages"], body.get("seed"), body.get("temperature")], sort_keys=True)
    drawn = hashlib.sha256(text.encode()).digest()
    asked = [part for part in PARTS if part in body["messages"][-1]["content"]]
    words = [asked[-1] if asked and drawn[0] % 2 else PARTS[drawn[1] % len(PARTS)], ("limits^4", *VERBS)[drawn[2] % 4]]
    return Answer(f"<think>It turns.</think>\n<search>{' '.join(words)}</search>")


def run_all(run_dir: Path, address: str) -> dict[str, Outputs]:
    """Run each stage on the small inputs; what it wrote, by its name."""
    write_documents(run_dir.parent / "documents")
    write_questions(run_dir.parent / "questions.jsonl")
    config = load(
        RunConfig,
        [
            *("--run-dir", str(run_dir), "--corpus.documents", str(run_dir.parent / "documents")),
            *("--corpus.questions", str(run_dir.parent / "questions.jsonl"), "--corpus.test-fraction", "0.4"),
            *("--engine.backend", "openai", "--engine.model", "scripted", "--engine.endpoint.address", address),
            *("--agent.max-iterations", "2", "--collect.samples-per-question", "3"),
            *("--collect.proposals", '["question_keywords", "rm3", "neighbours"]'),
            *("--format.formats", json.dumps([*METHODS.values(), *OTHERS]), "--format.validation-fraction", "0.3"),
            *("--evaluate.baselines", '["question", "question_keywords", "rm3", "neighbours", "templates"]'),
            *("--evaluate.adapters", "[]", "--evaluate.question-weights", "[]"),
        ],
    )
    names = [name for name, stage in STAGES.items() if not stage.switch and name not in APART and name != "finetune"]
    run_stages([STAGES[name] for name in names], config)
    outputs = {name: dict(hash_folder(run_dir / name)) for name in names}
    searcher = Searcher(run_dir / "index" / "search_index")
    outputs["index"]["search"] = {part: compute_hash(repr(searcher.search(f"the {part}", 5))) for part in PARTS}
    outputs["finetune"] = {method: hash_trained(run_dir / "format" / METHODS[method], config, method) for method in METHODS}
    return outputs


def hash_folder(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The tables of a stage; parts that were written side by side are one, in the order of their rows' ids."""
    parts = defaultdict[Path, list[Path]](list)
    for path in sorted(path for suffix in ("parquet", "jsonl") for path in folder.rglob(f"*.{suffix}")):
        parts[path.parent if path.name.startswith("part-") else path].append(path)
    for name, paths in parts.items():
        if name.name not in OF_THE_FOLDER | NOT_READ:
            rows = [row for path in paths for row in read_rows(path)]
            rows = sorted(rows, key=lambda row: str(row.get("id", "")))
            columns = {column: compute_hash([row.get(column) for row in rows]) for row in rows[:1] for column in row}
            yield name.relative_to(folder).as_posix(), {name: found for name, found in columns.items() if name not in VOLATILE}


def read_rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return pl.read_parquet(path).to_dicts()
    return [json.loads(line) for line in path.read_text().splitlines()]


def hash_trained(format_dir: Path, config: RunConfig, method: str) -> dict[str, str]:
    """The tokens and labels that a method learns from."""
    options = config.finetune.model_copy(update={"method": method, "limit": 0})
    paths = (format_dir / "train.jsonl", format_dir / "validation.jsonl")
    if method == "grpo":
        for path in paths:
            add_drawn_tokens(path)
    job = TrainJob(options, str(embedded_model_dir()), *paths, (), use_gpu=False, num_workers=1, num_threads=1)
    rows = tokenize_training_rows(job)
    return {"train": compute_hash(rows.train.rows), "validation": compute_hash(rows.validation.rows)}


def add_drawn_tokens(path: Path) -> None:
    """To steps whose replies an endpoint wrote, which says no tokens."""
    tokenizer, rows = load_tokenizer(str(embedded_model_dir())), [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        tokens = tokenizer(row["completion"][0]["content"] + tokenizer.eos_token)["input_ids"]
        row |= {"completion_token_ids": tokens, "completion_logprobs": [-1.0] * len(tokens)}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def compute_hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(drop_volatile(value), sort_keys=True, default=str).encode()).hexdigest()[:12]


def drop_volatile(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: drop_volatile(part) for key, part in value.items() if key not in VOLATILE}
    return [drop_volatile(part) for part in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def outputs(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outputs]:
    with serve_chat(answer) as served:
        found = run_all(tmp_path_factory.mktemp("outputs") / "run", served.address)
    if os.environ.get("WRITE_OUTPUTS"):
        kept = {name: {"version": STAGES[name].version, "outputs": outputs} for name, outputs in found.items()}
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    return found


@pytest.mark.parametrize("name", [name for name, stage in STAGES.items() if not stage.switch and name not in APART])
def test_another_output_is_another_version(name: str, outputs: dict[str, Outputs]) -> None:
    kept = json.loads(KEPT.read_text())[name]
    assert outputs[name] == kept["outputs"], "Raise the version of the stage in stages.py, if that was meant; see above."
    assert STAGES[name].version == kept["version"]
