"""Searches that need no training beside those of a model, at equal terms: `results/equal_terms.json`.

The question by words (BM25), by vectors, by both, and the best pages of the first and the last in the order of a model that reads
each with the question; what a model adds to it comes from finished evaluations. All have the same held-out questions, the same
pages and ten places for them.

    python benchmarks/bench_equal_terms.py search medquad medquad.jsonl --embedding FOLDER --rerank FOLDER [--device gpu]
    python benchmarks/bench_equal_terms.py compare medquad=medquad.jsonl ... [--evaluation medquad=runs/NAME/evaluate ...]

The model that reads may be a reranker that was trained on the training questions of a set (`finetune.method rerank`).

`search` asks the questions in an order that is drawn, so that the first of them are a sample, and keeps each as soon as it is
done: started again, it goes on. `compare` takes the questions that a file and the evaluations of its set have in common.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_effect import CONFIDENCE, MEASURES, NUM_RESAMPLES, SEED, correct, take_differences, take_value
from public_sets import DATA_DIR, build_searcher, read_page_set, require
from pydantic import TypeAdapter
from record import write_result

from drag_ray.agent.environment import PageSearcher, compute_evidence_rank
from drag_ray.baselines.dense import Dense
from drag_ray.engine.encoders.reranker import load_page_ranker
from drag_ray.evaluate.evaluation_folder import read_question_weights, read_results
from drag_ray.evaluate.measures import build_measures
from drag_ray.evaluate.question_result import Hops, QuestionResult, SearchScore
from drag_ray.evaluate.statistics.intervals import Resampling, compute_clusters
from drag_ray.evaluate.statistics.rows import build_rows
from drag_ray.finetune.training_folder import TUNED_NAME
from drag_ray.index import vector_parts
from drag_ray.search.config import EmbeddingConfig, RerankConfig
from drag_ray.search.dense import DenseSearcher, HybridSearcher
from drag_ray.search.index import PAGES_NAME
from drag_ray.search.page_reranker import PageRanker
from drag_ray.search.searcher import Searcher
from drag_ray.stage_runs import provenance
from drag_ray.storage.appended_lines import append_line, read_lines
from drag_ray.types import Evidence, Question

DEPTH = 10
"""Places that count, as in an evaluation."""
QUESTION = "question"
RERANKED = {"rerank": QUESTION, "hybrid+rerank": "hybrid"}
"""Reranked searches, and whose pages they order."""

Line = dict[str, Any]
_LINE = TypeAdapter(dict[str, Any])
"""What the searches found for one question: the rank of its page for each, what was read and how long that took."""


def search(options: argparse.Namespace) -> None:
    """Ask the held-out questions of a set, as many as there is time for, and append what was found to a file."""
    started = time.perf_counter()
    page_set = read_page_set(require(options.data_dir / options.set))
    held_out = [question for question in page_set.questions if question.split == "test"]
    drawn = random.Random(SEED).sample(held_out, len(held_out))[: options.questions or None]
    embedding = EmbeddingConfig(model=str(options.embedding), device="auto" if options.device == "gpu" else "cpu")
    rerank = RerankConfig(
        model=str(options.rerank),
        depth=options.depth,
        page_chars=options.page_chars,
        device=options.device,
        dtype="bfloat16",
        batch_size=options.batch_size,
    )
    done = begin(options.found, options.set, len(page_set.pages), embedding, rerank)
    left = [question for question in drawn if question.id not in done]
    with tempfile.TemporaryDirectory(prefix="drag-ray-bench-") as scratch:
        searcher = build_searcher(page_set.pages, Path(scratch))
        dense = embed(searcher, Path(scratch), embedding, left)
        finders = {QUESTION: searcher, "dense": dense, "hybrid": HybridSearcher(searcher, dense)}
        ranker = load_page_ranker(rerank, searcher)
        print(f"{options.set}: {len(left)} questions to ask, after {time.perf_counter() - started:.0f} s", flush=True)
        for question in left:
            if options.seconds and time.perf_counter() - started > options.seconds:
                break
            append_line(options.found, ask(question, finders, ranker, rerank.depth))
    num_asked = len(read_lines(options.found, _LINE)) - 1
    print(f"{options.set}: {num_asked} of {len(held_out)} questions asked, after {time.perf_counter() - started:.0f} s")


def begin(path: Path, name: str, num_pages: int, embedding: EmbeddingConfig, rerank: RerankConfig) -> set[str]:
    """The ids of the questions that a file has; a new one gets its first line, which says how they are asked and where."""
    models = {"embedding": embedding, "rerank": rerank}
    terms = {
        "set": name,
        "pages": num_pages,
        **{key: {**one.model_dump(mode="json"), "model": Path(one.model).name} for key, one in models.items()},
    }
    lines = read_lines(path, _LINE)
    if not lines:
        append_line(path, {"terms": terms, "machine": provenance.read_machine(), "versions": provenance.read_versions()})
    elif lines[0]["terms"] != terms:
        raise SystemExit(f"{path}: its questions were asked on other terms, {lines[0]['terms']}. Name another file.")
    return {line["question_id"] for line in lines[1:]}


def embed(searcher: Searcher, folder: Path, config: EmbeddingConfig, questions: Sequence[Question]) -> DenseSearcher:
    """The vectors of an index, as the index stage makes them, ready for these questions."""
    parts = vector_parts.plan_parts(folder / vector_parts.DIR_NAME, range(searcher.num_pages))
    embedder = vector_parts.WindowEmbedder(config, searcher.index_dir / PAGES_NAME)
    for path, rows in parts.items():
        embedder.write(path, rows)
    vector_parts.merge_parts(list(parts), folder / "vectors", searcher.record.fingerprint, config)
    return Dense(folder / "vectors").open_dense(searcher, [question.question for question in questions])


def ask(question: Question, finders: Mapping[str, PageSearcher], ranker: PageRanker, depth: int) -> Line:
    """The rank of a question's page for each search; a page that two rankings have is read once."""
    known: dict[Evidence, float] = {}
    ranks, seconds = {}, {}
    for name in (*finders, *RERANKED):
        begun = time.perf_counter()
        if name in RERANKED:
            found = finders[RERANKED[name]].search(question.question, depth)
            found = ranker.rerank(question.question, found, depth, known)
        else:
            found = finders[name].search(question.question, DEPTH)
        ranks[name] = compute_evidence_rank(tuple(found[:DEPTH]), question.evidence)
        seconds[name] = round(time.perf_counter() - begun, 4)
    about = {"question_id": question.id, "file": question.evidence[0].file, "group": question.group}
    return {**about, "ranks": ranks, "seconds": seconds, "pages_read": len(known)}


def compare(options: argparse.Namespace) -> None:
    """Write what each policy found, and how sure it is that it found more than another."""
    evaluations: dict[str, list[Path]] = {}
    for entry in options.evaluation:
        name, _, folder = entry.partition("=")
        evaluations.setdefault(name, []).append(Path(folder))
    rows, sets = [], {}
    for entry in options.found:
        name, _, path = entry.partition("=")
        head, *lines = read_lines(Path(path), _LINE) or [{}]
        if not lines:
            raise SystemExit(
                f"{path}: holds no question. Make it: python benchmarks/bench_equal_terms.py search {name} {path} ..."
            )
        results, weights = gather(lines, evaluations.get(name, []))
        rows += measure(name, results, weights)
        sets[name] = describe(head, lines, results)
    correct(rows, ("vs_question", "tuned_above"))
    print(json.dumps(rows, indent=1))
    write_result(options.name, {"depth": DEPTH, "sets": sets, "rows": rows}, measured_here=False)


def gather(lines: Sequence[Line], folders: Sequence[Path]) -> tuple[dict[str, list[QuestionResult]], dict[str, float]]:
    """The results of each policy for the questions that all have, in one order, and the weights of the question that were found.

    Raises:
        SystemExit: an evaluation found other pages for a question as it stands, so it searched another index.
    """
    found = {line["question_id"]: line for line in lines}
    models: dict[str, dict[str, QuestionResult]] = {}
    weights: dict[str, float] = {}
    for folder in folders:
        evaluated = {name: {one.question_id: one for one in results} for name, results in read_results(folder).items()}
        for id, one in evaluated[QUESTION].items():
            if id in found and one.searches.first_search_rank != found[id]["ranks"][QUESTION]:
                rank = one.searches.first_search_rank
                raise SystemExit(f"{folder}: {id!r} finds its page at rank {rank} there, and here {found[id]}.")
        models |= {name: results for name, results in evaluated.items() if name not in lines[0]["ranks"]}
        weights |= read_question_weights(folder)
    shared = [line for line in lines if all(line["question_id"] in results for results in models.values())]
    searched = {name: [to_result(line, name) for line in shared] for name in lines[0]["ranks"]}
    return searched | {name: [results[line["question_id"]] for line in shared] for name, results in models.items()}, weights


def to_result(line: Line, name: str) -> QuestionResult:
    """The result of a search for a question, as an evaluation has it."""
    asked = {"question_id": line["question_id"], "file": line["file"], "group": line["group"], "category": ""}
    searches = SearchScore(first_search_rank=line["ranks"][name])
    return QuestionResult(**asked, hops=Hops.SINGLE, num_evidence=1, top_k=3, depth=DEPTH, searches=searches)


def measure(name: str, results: Mapping[str, Sequence[QuestionResult]], weights: Mapping[str, float]) -> list[dict[str, Any]]:
    """A row for each policy, with its differences from the question and those of the tuned model from it; p-values are raw."""
    measures = [one for one in build_measures(results) if one.name in MEASURES.values()]
    others = [policy for policy in results if policy != QUESTION]
    beaten = [policy for policy in others if policy != TUNED_NAME] if TUNED_NAME in results else []
    pairs = [*((policy, QUESTION) for policy in others), *((TUNED_NAME, policy) for policy in beaten)]
    clusters = compute_clusters(results[QUESTION])
    found = {row.name: row for row in build_rows(results, pairs, measures, Resampling(clusters, CONFIDENCE, NUM_RESAMPLES, SEED))}
    return [
        {
            **{"set": name, "policy": policy, "question_weight": weights.get(policy)},
            **{key: take_value(found[one], policy) for key, one in MEASURES.items()},
            "vs_question": take_differences(found, policy, QUESTION),
            "tuned_above": take_differences(found, TUNED_NAME, policy) if policy in beaten else None,
        }
        for policy in results
    ]


def describe(head: dict[str, Any], lines: Sequence[Line], results: Mapping[str, Sequence[QuestionResult]]) -> dict[str, Any]:
    """Figures of a set's searches: pages read, seconds, and the questions that are compared."""
    seconds = {name: round(sum(line["seconds"][name] for line in lines) / len(lines), 4) for name in lines[0]["seconds"]}
    return {
        "questions": len(results[QUESTION]),
        "searched": len(lines),
        "pages_read_a_question": round(sum(line["pages_read"] for line in lines) / len(lines), 1),
        "seconds_a_question": seconds,
        **head,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    asking = commands.add_parser("search", help="ask a set's questions")
    asking.set_defaults(run=search)
    asking.add_argument("set", help="a page set, for example medquad")
    asking.add_argument("found", type=Path, help="file that is appended to")
    asking.add_argument("--data-dir", type=Path, default=DATA_DIR, help="folder of the public sets")
    asking.add_argument("--embedding", type=Path, required=True, help="folder of an embedding model of sentence-transformers")
    asking.add_argument("--rerank", type=Path, required=True, help="folder of a model, or of the adapter of a reranker")
    asking.add_argument("--device", choices=["cpu", "gpu"], default="cpu", help="where both models run")
    asking.add_argument("--depth", type=int, default=RerankConfig().depth, help="pages of a ranking that the second reads")
    asking.add_argument("--page-chars", type=int, help="that it reads of a page; 0: all")
    asking.add_argument("--batch-size", type=int, default=64, help="windows that the second reads at once")
    asking.add_argument("--questions", type=int, default=0, help="that are asked at most; 0: all")
    asking.add_argument("--seconds", type=float, default=0, help="after the start in which no question is begun; 0: no limit")
    comparing = commands.add_parser("compare", help="compare what was found")
    comparing.set_defaults(run=compare)
    comparing.add_argument("found", nargs="+", metavar="NAME=FILE", help="sets and their files")
    comparing.add_argument("--evaluation", nargs="*", default=[], metavar="NAME=FOLDER", help="finished evaluate stages")
    comparing.add_argument("--name", default="equal_terms", help="of the result")
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
