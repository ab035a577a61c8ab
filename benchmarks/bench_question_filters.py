"""Worth of options of the stage `questions`: what a ranker learns from equally many questions with each of them and without.

python benchmarks/bench_question_filters.py --model MODEL [--sets medquad,ohr_bench] [--limit 3000] [--seeds 0,1,2,3,4]
    [--option engine.gpu-memory-utilization=0.8] [--result question_filters]
python benchmarks/bench_question_filters.py --model MODEL --page-view image --sets financebench --result question_filters_figure

A model writes questions over a set with all filters, of the kind `table` too or, from pictures of the pages of its PDFs, of the
kind `figure`. What an option leaves is read from its drafts, so that the same are compared: `language`, `max_cosine` at some
values, `difficulty`, and the kind. The baseline `features` learns from as many with it as without it, in a draw for each seed,
and puts in order what real questions of the set find by words. These are over other documents, and none of the test of
`bench_rankers.py` (see `bench_question_kinds.py`). What is under `--out` already is not written again.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench_question_kinds import LEAST, NUM_ASKED, NUM_LEARNED, teach
from bench_rankers import Collection, compare_values, measure, rank, search_words, split
from public_sets import DATA_DIR, require
from record import write_result

from drag_ray import schemas
from drag_ray.corpus.near_duplicates import find_near_duplicates
from drag_ray.corpus.questions import check_evidence, draw_questions, read_questions
from drag_ray.corpus.split import find_overlaps, split_questions
from drag_ray.engine.encoders.embedding import Embedder
from drag_ray.engine.models.embedded import MINILM
from drag_ray.evaluate.statistics.intervals import holm
from drag_ray.questions.config import JOURNAL_NAME, QuestionsConfig
from drag_ray.questions.drafts import DRAFT, Draft, drop_repeated, mix_difficulty
from drag_ray.questions.languages import UNKNOWN, tell_language
from drag_ray.search.config import EmbeddingConfig
from drag_ray.search.searcher import Searcher
from drag_ray.storage.appended_lines import read_lines
from drag_ray.storage.artifacts import require_manifest
from drag_ray.types import Question

ROOT = Path(__file__).parent.parent
KINDS = {"text": ("fact", "procedure", "user", "table"), "image": ("fact", "procedure", "user", "figure")}
"""By the view of the pages; the last is measured."""
LANGUAGE = "en"
ASKED_FRACTION = 0.5
"""of the documents outside the test, so that a set of few documents leaves some to learn from"""
COSINES = (0.95, 0.9, 0.85)
DIFFICULTY = {"1": 0.3, "2-10": 0.5, "11-": 0.2}


class Option(NamedTuple):
    """An option by its name, the drafts that are kept with it and without it, and the seconds that it took to tell."""

    name: str
    on: list[Draft]
    off: list[Draft]
    seconds: float


def write_questions(options: argparse.Namespace, name: str, run_dir: Path) -> dict[str, Any]:
    """The counts and the seconds of the stage over a set, which is indexed and written unless it is there."""
    source = require(options.data_dir / name)
    by_picture = options.page_view == "image"
    documents = [str(source / "pdfs"), "--corpus.page-images"] if by_picture else [str(source / "pages.jsonl.gz")]
    asked = ["--questions.limit", str(options.limit), "--questions.page-view", options.page_view]
    asked += ["--questions.kinds", json.dumps(KINDS[options.page_view])]
    run_job("index", ["--run-dir", str(run_dir), "--corpus.documents", *documents])
    model = ["--engine.model", options.model, "--embedding.model", options.embedder]
    run_job("questions", ["--run-dir", str(run_dir), *model, *asked, *to_arguments(dict(options.option))])
    return read_counts(run_dir / "questions")


def read_counts(stage_dir: Path) -> dict[str, Any]:
    """The seconds of a finished stage, and its counts that are not 0."""
    manifest = require_manifest(stage_dir, f"python jobs/{stage_dir.name}.py")
    return {"stage_s": round(manifest.duration_s, 1), **{key: count for key, count in manifest.counts.items() if count}}


def read_drafts(run_dir: Path) -> dict[str, Draft]:
    """The drafts of a run by their names, the last of each."""
    return {draft.id: draft for draft in read_lines(run_dir / "questions" / JOURNAL_NAME, DRAFT)}


def count_learned(groups: Iterable[Sequence[Question]]) -> int:
    """The number of questions that a ranker learns from in each draw: draws of the smallest group are to differ too."""
    return min(NUM_LEARNED, 4 * min(map(len, groups)) // 5)


def read_option(text: str) -> tuple[str, str]:
    """A name and its value, of the command line."""
    name, _, value = text.partition("=")
    return name, value


def to_arguments(given: Mapping[str, str]) -> list[str]:
    """Options as arguments of a job; a switch has no value."""
    return [part for name, value in given.items() for part in (f"--{name}", value) if part]


def run_job(stage: str, arguments: list[str]) -> None:
    """Run one job and stop if it fails."""
    subprocess.run([sys.executable, str(ROOT / "jobs" / f"{stage}.py"), *arguments], check=True)


def open_run(options: argparse.Namespace, name: str, run_dir: Path) -> Collection:
    """The index of a run, with the real questions whose pages it has."""
    folder = run_dir / "index"
    pages = schemas.read_table(folder / "pages.parquet", schemas.PAGES, ["file", "page_number"])
    keys = set(zip(pages["file"].to_pylist(), pages["page_number"].to_pylist(), strict=True))
    questions, _ = check_evidence(read_questions(options.data_dir / name / "questions.jsonl")[0], keys)
    return Collection(name, folder, questions, Searcher(folder / "search_index"))


def list_options(drafts: Sequence[Draft], collection: Collection, options: argparse.Namespace) -> Iterator[Option]:
    """The options, each with the drafts that it leaves; these were not compared with one another before."""
    settings = QuestionsConfig(limit=0)
    embedder = Embedder(EmbeddingConfig(model=options.embedder))

    def embed(texts: list[str]) -> np.ndarray:
        vectors = embedder.embed_queries(texts)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)

    def clock(name: str, off: list[Draft], leave: Callable[[], Sequence[Draft]]) -> Option:
        started = time.perf_counter()
        on = [draft for draft in leave() if not draft.reason]
        return Option(name, on, off, round(time.perf_counter() - started, 2))

    distinct = [draft for draft in drop_repeated(drafts, settings) if not draft.reason]
    for cosine in COSINES:
        config = settings.model_copy(update={"max_cosine": cosine})
        yield clock(f"max_cosine {cosine}", distinct, partial(drop_repeated, drafts, config, embed))
    kept = [draft for draft in drop_repeated(drafts, settings, embed) if not draft.reason]

    def speaks(draft: Draft) -> bool:
        texts = (draft.question, *(collection.searcher.page(place).text for place in draft.places))
        return {LANGUAGE, UNKNOWN}.issuperset(map(tell_language, texts))

    yield clock(f"language {LANGUAGE}", kept, lambda: [*filter(speaks, kept)])
    mixed = settings.model_copy(update={"difficulty": DIFFICULTY})
    yield clock("difficulty", kept, lambda: mix_difficulty(kept, mixed, 0))
    kind = KINDS[options.page_view][-1]
    cost = round(sum(draft.seconds for draft in drafts if draft.kind == kind), 1)
    yield Option(f"kind {kind}", kept, [draft for draft in kept if draft.kind != kind], cost)


def run_set(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """The table of a set."""
    run_dir = options.out / options.page_view / name
    counts = write_questions(options, name, run_dir)
    collection = open_run(options, name, run_dir)
    own, test, alike = split(collection)
    held, _ = split_questions([replace(one, split="") for one in own], ASKED_FRACTION, 1, "document", alike)
    asked = draw_questions([one for one in held if one.split == "test"], NUM_ASKED, 0)
    drafts = [*read_drafts(run_dir).values()]
    table = schemas.read_table(collection.folder / "pages.parquet", schemas.PAGES)
    places = dict.fromkeys(page for one in [*asked, *test, *(draft.to_question() for draft in drafts)] for page in one.evidence)
    near = find_near_duplicates(table, places)
    found = search_words(asked, collection.searcher)
    question, files = measure(rank(asked, found))[None], [one.evidence[0].file for one in asked]
    rows: dict[str, Any] = {}
    for option in list_options(drafts, collection, options):
        sides = {side: [draft.to_question() for draft in of] for side, of in (("on", option.on), ("off", option.off))}
        overlaps = find_overlaps([*sides["on"], *sides["off"]], [*asked, *test], "document", near)
        learned = {side: [one for one in of if one.id not in overlaps] for side, of in sides.items()}
        number = count_learned(learned.values())
        row = rows[option.name] = {
            "seconds": option.seconds,
            "kept": {side: len(of) for side, of in sides.items()},
            "kinds": {side: Counter(draft.kind for draft in of) for side, of in (("on", option.on), ("off", option.off))},
            "learned": number,
        }
        if number >= options.least:
            values = {side: teach(of, number, asked, found, collection, options.seeds) for side, of in learned.items()}
            row |= compare_values({"question": question, **values}, files, ["off"])
        print(name, option.name, row["kept"], number, row.get("on", {}).get("above_off", {}).get("mrr"), flush=True)
    reasons = {
        kind: Counter(draft.reason or "kept" for draft in drafts if draft.kind == kind) for kind in KINDS[options.page_view]
    }
    return {"asked": len(asked), "stage": counts, "drafts": reasons, "options": rows}


def add_options(parser: argparse.ArgumentParser, name: str) -> None:
    """The options of a benchmark of written questions: how they are written, where, and how often a ranker learns from them."""
    parser.add_argument(
        "--option", type=read_option, action="append", default=[], metavar="NAME=VALUE", help="of the stage, beside its defaults"
    )
    parser.add_argument("--out", type=Path, default=Path("runs") / name, help="folder of the runs")
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="folder of the public sets")
    parser.add_argument("--seeds", type=lambda text: [*map(int, text.split(","))], default=[0, 1, 2, 3, 4])
    parser.add_argument("--least", type=int, default=LEAST, help="questions to learn from, under which nothing is learned")
    parser.add_argument("--result", default=name, help="name of the result")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the writer, as engine.model; one that sees images for --page-view image")
    parser.add_argument("--embedder", default=MINILM, help="embedding.model, which tells questions that mean the same")
    parser.add_argument("--page-view", choices=tuple(KINDS), default="text", help="image: from the PDFs of the sets")
    parser.add_argument("--sets", type=lambda text: text.split(","), default=["medquad", "ohr_bench"])
    parser.add_argument("--limit", type=int, default=3_000, help="questions to write over a set, before the filters")
    add_options(parser, "question_filters")
    options = parser.parse_args()
    tables = {name: run_set(options, name) for name in options.sets}
    rows = [row for table in tables.values() for row in table["options"].values() if "on" in row]
    differences = [row["on"]["above_off"]["mrr"] for row in rows]
    for found, adjusted in zip(differences, holm([one[3] for one in differences]), strict=True):
        found.append(adjusted)
    write_result(options.result, {"model": Path(options.model).name, "difficulty": DIFFICULTY, "sets": tables})


if __name__ == "__main__":
    main()
