"""Pages that an untrained query writer finds for the test questions of `bench_rankers.py`, for its `--additions`.

python benchmarks/ask_writer.py FOLDER --model MODEL --sets medquad fairytaleqa [--data-dir DIR] [--device gpu]

Each set becomes a run in FOLDER/runs/SET, whose policy `base` writes one query a question beside the question's own words.
FOLDER/SET.json holds the pages that it finds, best first.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import bench_rankers
import polars as pl
from public_sets import DATA_DIR
from record import make_folder

import drag_ray
from drag_ray.api.run import Run
from drag_ray.storage import artifacts


def write_questions(options: argparse.Namespace, name: str) -> tuple[Path, list[dict[str, str]]]:
    """The test questions as a file of their own, and some to train on as examples of prompts, with their own words as query."""
    collection = bench_rankers.open_collection(options, name, options.folder)
    train, test, _ = bench_rankers.split(collection)
    rows = [
        {"id": one.id, "question": one.question, "evidence": [[*astuple(page)] for page in one.evidence], "split": "test"}
        for one in test
    ]
    path = options.folder / "questions" / f"{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    examples = bench_rankers.draw_questions(train, 3, 0)
    searcher = collection.searcher
    queries = [" ".join(dict.fromkeys(searcher.analyze(one.question))) for one in examples]
    return path, [{"question": one.question, "query": query} for one, query in zip(examples, queries, strict=True)]


def ask(options: argparse.Namespace, name: str) -> None:
    """Ask and write what is found."""
    questions, examples = write_questions(options, name)
    engine = {"model": options.model, "device": options.device, "max_model_len": 2048, "max_num_seqs": 512, "logprobs": False}
    shared = {"gpu_memory_utilization": options.share} if options.device == "gpu" else {"enforce_eager": True}
    with drag_ray.open_run(
        options.folder / "runs" / name,
        corpus={"documents": str(options.data_dir / name / "pages.jsonl.gz"), "questions": str(questions)},
        agent={"max_tokens": 48, "thinking": False, "question_weight": 1, "examples": examples},
        engine={**engine, **shared},
        rollout={"concurrent_rollouts": 512},
    ) as run:
        run.index()
        run.evaluate(evaluate={"limit": options.limit})
        write_pages(options.folder / f"{name}.json", run, "base")
    shutil.rmtree(options.folder / "runs" / name)


def write_pages(path: Path, run: Run, policy: str) -> None:
    """Write what a policy of an evaluation finds for each question, as `bench_rankers.py --additions` reads it."""
    asked = run.read_trajectories("evaluate")
    own = asked.filter(pl.col("provenance").struct.field("policy") == policy).select("question_id", "turns")
    pages = {question: list_pages(turns) for question, turns in own.iter_rows()}
    path.parent.mkdir(parents=True, exist_ok=True)
    artifacts.write_json(path, {"model": Path(run.config.engine.model).name, "pages": pages})


def list_pages(turns: Sequence[dict[str, Any]]) -> list[tuple[str, int]]:
    """The pages of the first search, best first."""
    return [(hit["file"], hit["page_number"]) for turn in turns[:1] for hit in turn["ranking"]["hits"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=make_folder)
    parser.add_argument("--model", required=True)
    parser.add_argument("--sets", nargs="+", required=True)
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--share", type=float, default=0.3, help="of the GPU's memory")
    parser.add_argument("--limit", type=int, default=0, help="test questions, drawn; 0 takes all")
    options = parser.parse_args()
    drag_ray.show_messages()
    for name in options.sets:
        ask(options, name)


if __name__ == "__main__":
    main()
