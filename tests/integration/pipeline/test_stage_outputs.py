"""The output of each stage on small inputs is that of its version: one that changes raises the version in `stages.py`.

`stage_outputs.json` holds a hash of each column that a version of a stage wrote. After a change that was meant, raise the version
and write the file anew:

    WRITE_OUTPUTS=1 python -m pytest tests/integration/pipeline/test_stage_outputs.py

Of `finetune` the tokens and labels are compared, which are the same everywhere, and no weights; of `embed` the windows of the
pages and the first pages for a query, as vectors differ by processor in their last digits. Of `tune` the choice is that of too
few questions: the table of first stages is compared. The pages of `questions` are spread over files alone: these lie as far from
one topic as from another, so that the processor decides. The replies of `rl` are drawn by vLLM with weights that
were trained before, so they differ by processor too: what becomes of given ones is compared in `tests/unit/rl/test_course.py`.
"""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from chat_server import Answer, serve_chat
from embedding_models import write_embedding_model

from drag_ray.agent.retrieval import open_dense
from drag_ray.config import load, override
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.engine.models.pretrained import load_tokenizer
from drag_ray.finetune.config import TrainJob
from drag_ray.finetune.rows.training_rows import tokenize_training_rows
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_stage, run_stages
from drag_ray.pipeline.stages import STAGES
from drag_ray.search.searcher import Searcher

KEPT = Path(__file__).with_name("stage_outputs.json")
PARTS = ("rotor", "spar", "valve", "pump", "flap", "wheel", "wing", "brake", "nozzle", "cabin", "hinge", "strut")
VERBS = ("checked", "replaced", "stored")
METHODS = {"sft": "sft_query", "dpo": "dpo", "grpo": "rl_steps", "reward": "reward", "rerank": "relevance"}
"""A row format for each training method."""
OTHERS = ("sft_trajectory", "sft_context", "rejection")
COMPARED = [name for name in STAGES if name != "rl"]
APART = ("questions", "tune", "embed", "finetune")
"""Stages that are run after the others, so that these read nothing of them, or in part."""
VOLATILE = {"started_at", "duration_s", "generate_s", "search_s", "tool_s", "seconds"}
"""Columns and keys that another run of the same work has otherwise."""
OF_THE_FOLDER = {"checksums.jsonl", "problems.jsonl", "spending.jsonl"}
"""What every stage's folder has."""
NOT_READ = {"documents.parquet", "drafts.jsonl"}
"""Files that nobody reads but the stage itself: the one names files by their whole paths, the other has rows as they came."""

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
    """A search for two words that are drawn by what was asked and how; or a question, and the answers that judge it."""
    if body["messages"][0]["role"] != "system":
        return Answer(write_draft(body["messages"][0]["content"], body["messages"][-1]["content"]))
    text = json.dumps([body["messages"], body.get("seed"), body.get("temperature")], sort_keys=True)
    drawn = hashlib.sha256(text.encode()).digest()
    asked = [part for part in PARTS if part in body["messages"][-1]["content"]]
    words = [asked[-1] if asked and drawn[0] % 2 else PARTS[drawn[1] % len(PARTS)], ("limits^4", *VERBS)[drawn[2] % 4]]
    return Answer(f"<think>It turns.</think>\n<search>{' '.join(words)}</search>")


def write_draft(opening: str, prompt: str) -> str:
    """A question about the page of a prompt, which refers to the page where that is of stored parts; or an answer to it from
    pages that have its words."""
    shown, _, question = prompt.rpartition("<page>")[2].partition("Question:")
    if "Reply with nothing but one JSON object" in opening:
        part, verb = (next((word for word in words if word in shown), "tool") for words in (PARTS, VERBS))
        question = f"What does this page say of the {part}?" if verb == "stored" else f"In which way is a {part} {verb}?"
        return json.dumps({"question": question, "answer": "with care"})
    asked = [word for word in (*PARTS, *VERBS) if word in question]
    return "with care" if "</page>" in shown and all(word in shown for word in asked) else "unknown"


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
            *("--questions.limit", "24", "--questions.min-words", "5", "--questions.topics", "1"),
        ],
    )
    names = [*(name for name in COMPARED if name not in APART), "tune", "questions"]
    run_stages([STAGES[name] for name in names], config)
    outputs = {name: dict(hash_folder(run_dir / name)) for name in names}
    outputs["tune"] |= {"choice.json": hash_values(json.loads((run_dir / "tune" / "choice.json").read_text()))}
    outputs["embed"] = embed(run_dir, config)
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


def hash_values(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: compute_hash(value) for name, value in values.items()}


def embed(run_dir: Path, config: RunConfig) -> Outputs:
    """The windows of the pages by a tiny model, and the first pages that are found with it."""
    model = write_embedding_model(run_dir.parent / "model")
    options = {"embedding": {"model": str(model), "window_tokens": 8, "overlap_tokens": 2}}
    manifest = run_stage(STAGES["embed"], override(config, options))
    vectors_dir = run_dir / "embed" / "vectors"
    dense = open_dense(Searcher(run_dir / "index" / "search_index"), vectors_dir)
    vectors = np.load(vectors_dir / "vectors.npy")
    stored = {"rows": np.load(vectors_dir / "rows.npy").tolist(), "shape": vectors.shape, "type": str(vectors.dtype)}
    found = [(hit.file, hit.page_number) for hit in dense.search("rotor limit", 5)]
    return {"vectors": hash_values({**stored, **manifest.counts, "found": found})}


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


@pytest.mark.parametrize("name", COMPARED)
def test_another_output_is_another_version(name: str, outputs: dict[str, Outputs]) -> None:
    kept = json.loads(KEPT.read_text())[name]
    assert outputs[name] == kept["outputs"], "Raise the version of the stage in stages.py, if that was meant; see above."
    assert STAGES[name].version == kept["version"]
