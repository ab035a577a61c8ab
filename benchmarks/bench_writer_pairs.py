"""Gain of a writer of questions by `drag-ray pairs`: it is trained on its drafts over some documents and writes over others.

python benchmarks/bench_writer_pairs.py --model MODEL [--sets fairytaleqa] [--limit 1000] [--samples 4]
    [--option engine.gpu-memory-utilization=0.8] [--train-option finetune.learning-rate=1e-5] [--result writer_pairs]

A third of a set's documents gets several drafts of each question, of which pairs are made and DPO trains an adapter. Over the
other documents the writer drafts as many questions with the adapter as without it, of the same pages and kinds. The result has
for both how many drafts the filters keep, for which reasons they reject the others, and what the baseline `features` learns from
equally many that were kept: in a draw for each seed it puts in order what real questions of half of these documents find by
words; none of what it learns is asked over these. What is under `--out` already is not written again.
"""

import argparse
import gzip
import json
import random
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from bench_question_filters import (
    add_options,
    count_learned,
    open_run,
    read_counts,
    read_drafts,
    read_option,
    run_job,
    to_arguments,
)
from bench_question_kinds import NUM_ASKED, teach
from bench_rankers import compare_values, measure, rank, search_words
from public_sets import require
from record import write_result

from drag_ray import schemas
from drag_ray.corpus.near_duplicates import find_near_duplicates
from drag_ray.corpus.questions import draw_questions
from drag_ray.corpus.split import find_overlaps, split_questions
from drag_ray.questions.drafts import Draft
from drag_ray.questions.pairs import write_pairs

KINDS = ("fact", "procedure", "user")
WRITER_FRACTION, ASKED_FRACTION = 1 / 3, 0.5
"""Of a set's documents those that the writer learns from, and of the others those that real questions are asked of."""
TRAINING = {
    **{"finetune.method": "dpo", "finetune.epochs": "1", "finetune.learning-rate": "1e-5"},
    **{"finetune.batch-size": "8", "finetune.gradient-accumulation": "2", "no-finetune.merge": ""},
}
BASE, TUNED = "base", "tuned"


def cut_set(source: Path, folder: Path) -> dict[str, Path]:
    """The pages of the documents that the writer learns from, and of the others, as files."""
    paths = {name: folder / f"{name}.jsonl" for name in ("writer", "others")}
    with gzip.open(source / "pages.jsonl.gz", "rt", encoding="utf-8") as stream:
        lines = [(json.loads(line)["file"], line) for line in stream]
    files = sorted({file for file, _ in lines})
    chosen = set(random.Random(0).sample(files, round(len(files) * WRITER_FRACTION)))
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in paths.items():
        path.write_text("".join(line for file, line in lines if (file in chosen) == (name == "writer")), encoding="utf-8")
    return paths


def draft(run_dir: Path, documents: Path, options: Namespace, samples: int, adapter: str = "") -> dict[str, Any]:
    """Write questions over some documents; the counts of the stage and its seconds."""
    run_job("index", ["--run-dir", str(run_dir), "--corpus.documents", str(documents)])
    asked = {"limit": str(options.limit), "samples": str(samples), "kinds": json.dumps(KINDS)}
    given = {"engine.model": options.model, **{f"questions.{name}": value for name, value in asked.items()}}
    given |= dict(options.option) | ({"engine.adapter": adapter} if adapter else {})
    run_job("questions", ["--run-dir", str(run_dir), *to_arguments(given)])
    return read_counts(run_dir / "questions")


def train(folder: Path, options: Namespace) -> dict[str, Any]:
    """Train the writer on the pairs of its drafts; how many there are, and what training took."""
    pairs = folder / "pairs.jsonl"
    number = write_pairs(folder / "writer", pairs)
    of_engine = {name: value for name, value in options.option if name.startswith("engine.")}
    device = {name.replace("engine", "finetune"): of for name, of in of_engine.items() if name.endswith((".device", ".dtype"))}
    given = {"engine.model": options.model, **of_engine, **device, **TRAINING, **dict(options.train_option)}
    run_job("finetune", ["--run-dir", str(folder / "training"), "--finetune.data", str(pairs), *to_arguments(given)])
    return {"pairs": number, **read_counts(folder / "training" / "finetune")}


def describe(drafts: Sequence[Draft]) -> dict[str, Any]:
    """The reasons and ranks of some drafts, and what they cost."""
    tokens = {key: sum(getattr(one, key) for one in drafts) for key in ("calls", "prompt_tokens", "completion_tokens")}
    ranks = Counter("1" if one.rank == 1 else "2-10" if one.rank <= 10 else "11-" for one in drafts if not one.reason)
    return {"reasons": Counter(one.reason or "kept" for one in drafts), "ranks_of_kept": ranks, **tokens}


def compare(options: Namespace, name: str, folder: Path) -> dict[str, Any]:
    """The share of drafts that is kept of both, and what is learned from these."""
    drafts = {side: read_drafts(folder / side) for side in (BASE, TUNED)}
    shared = sorted(drafts[BASE].keys() & drafts[TUNED].keys())
    kept = {side: np.array([[[not of[key].reason] for key in shared]], np.float64) for side, of in drafts.items()}
    rows = compare_values(kept, [drafts[BASE][key].file for key in shared], [BASE], ["kept"])
    collection = open_run(options, name, folder / BASE)
    table = schemas.read_table(collection.folder / "pages.parquet", schemas.PAGES)
    questions = {side: [one.to_question() for one in of.values() if not one.reason] for side, of in drafts.items()}
    places = dict.fromkeys(page for one in [*collection.questions, *questions[BASE], *questions[TUNED]] for page in one.evidence)
    near = find_near_duplicates(table, places)
    real = [replace(one, split="") for one in collection.questions]
    held, _ = split_questions(real, ASKED_FRACTION, 0, "document", near)
    asked = draw_questions([one for one in held if one.split == "test"], NUM_ASKED, 0)
    overlaps = find_overlaps([*questions[BASE], *questions[TUNED]], asked, "document", near)
    learned = {side: [one for one in of if one.id not in overlaps] for side, of in questions.items()}
    number = count_learned(learned.values())
    drafted = {side: describe([*of.values()]) for side, of in drafts.items()}
    result = {"drafts": drafted, "compared": len(shared), "kept": rows, "asked": len(asked), "learned": number}
    if number < options.least:
        return result
    found = search_words(asked, collection.searcher)
    values = {side: teach(of, number, asked, found, collection, options.seeds) for side, of in learned.items()}
    values = {"question": measure(rank(asked, found))[None], **values}
    taught = compare_values(values, [one.evidence[0].file for one in asked], [BASE, "question"])
    return result | {"features": taught}


def run_set(options: Namespace, name: str) -> dict[str, Any]:
    """The table of a set."""
    folder = options.out / name
    paths = cut_set(require(options.data_dir / name), folder)
    stages = {"writer": draft(folder / "writer", paths["writer"], options, options.samples)}
    training = train(folder, options)
    stages[BASE] = draft(folder / BASE, paths["others"], options, 1)
    stages[TUNED] = draft(folder / TUNED, paths["others"], options, 1, str(folder / "training" / "finetune" / "adapter"))
    return {"stages": stages, "training": training, **compare(options, name, folder)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the writer, as engine.model")
    parser.add_argument("--sets", type=lambda text: text.split(","), default=["fairytaleqa"])
    parser.add_argument("--limit", type=int, default=1_000, help="questions to write over each part, before the filters")
    parser.add_argument("--samples", type=int, default=4, help="drafts of each that pairs are made of")
    parser.add_argument("--train-option", type=read_option, action="append", default=[], metavar="NAME=VALUE", help="of training")
    add_options(parser, "writer_pairs")
    options = parser.parse_args()
    sets = {name: run_set(options, name) for name in options.sets}
    about = {"model": Path(options.model).name, "training": TRAINING, "samples": options.samples}
    write_result(options.result, about | {"sets": sets})
    for name, of in sets.items():
        print(name, of["training"]["pairs"], "pairs; kept", of["kept"], "features", of.get("features"))


if __name__ == "__main__":
    main()
