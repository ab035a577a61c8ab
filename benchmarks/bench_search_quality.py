"""Quality of queries that nobody learned: a trained policy has to beat it, and the engine has to match it.

1. page sets: the raw question as the query, beside bm25s on the same tokens and the BM25 figures that the sets come with;
2. retrieval sets: nDCG@10 beside bm25s on the same tokens, with the same k1 and b, and beside RM3: expansion helps where many
   documents answer a query (Cranfield, CISI) and harms where one does (SciFact, and the page sets);
3. baselines without a model, on two page sets and on the embedded corpus;
4. with --vectors, in the place of all this: dense and hybrid retrieval beside the raw question, on finished index stages that
   have vectors. Each was built with `python jobs/index.py --run-dir runs/NAME --embedding.model FOLDER`, for a page set also with
   `--corpus.documents ../shared/data/NAME/pages.jsonl.gz --corpus.questions ../shared/data/NAME/questions.jsonl`.

No time is measured here, so it may run beside other work.

python benchmarks/bench_search_quality.py [--data-dir ../shared/data] [--index-dir runs/demo/index]
python benchmarks/bench_search_quality.py --vectors runs/NAME/index ...
"""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from public_sets import DATA_DIR, PageSet, build_searcher, read_page_set, read_retrieval_set, require, to_pages
from record import write_result

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import compute_evidence_rank
from drag_ray.baselines.baseline import Baseline, Sources
from drag_ray.baselines.registry import BASELINES
from drag_ray.baselines.rm3 import RelevanceModel
from drag_ray.baselines.rollouts import BaselineOptions, build_rollouts
from drag_ray.evaluate.config import EvaluateConfig
from drag_ray.rollout.plan import build_plan
from drag_ray.search import vectors
from drag_ray.search.searcher import Searcher
from drag_ray.search.vectors import PageVectors
from drag_ray.types import Hit, Question

DEPTH = 10
RUN_DEPTH = 100
PUBLISHED_PAGE_SETS = {
    "medquad": (0.300, 0.564, 0.462),
    "fairytaleqa": (0.514, 0.691, 0.617),
    "squad_v1_dev": (0.773, 0.896, 0.839),
    "ohr_bench": (0.762, 0.908, 0.840),
    "ohr_bench/pages_mineru": (0.695, 0.846, 0.775),
    "financebench": (0.352, 0.548, 0.467),
    "wiki_pdf": (0.127, 0.286, 0.261),
}
"""Hit@1, Hit@3 and MRR@10 of BM25 in the README of the data, over all splits of the original sets: some are not in the folder."""
PUBLISHED_RETRIEVAL_SETS = {"scifact_train": 0.696, "cranfield": 0.528, "cisi": 0.382}
"""nDCG@10 of bm25s in the README of the data."""
BASELINE_SETS = ("medquad", "fairytaleqa")
WITHOUT_MODEL = ("question", "question_keywords", "rm3")
WITH_VECTORS = ("question", "dense", "hybrid")


def measure_baseline(baseline: Baseline, searcher: Searcher, questions: Sequence[Question]) -> dict[str, float]:
    """Hit@k and MRR of a baseline without an engine, through the rollouts that `evaluate` makes of it."""
    agent, name = AgentConfig(top_k=DEPTH, depth=DEPTH), baseline.name
    texts = [question.question for question in questions]
    rollouts = build_rollouts(name, BaselineOptions(agent, {name: baseline}), searcher, questions=texts)

    async def roll_out() -> list[int | None]:
        plan = build_plan(questions, ("greedy",), 1, run_seed=0)
        trajectories = [await rollouts.run(task) for task in plan]
        failed = [trajectory.error for trajectory in trajectories if trajectory.error]
        if failed:
            raise SystemExit(f"{name}: {len(failed)} rollouts failed, the first one with: {failed[0]}")
        return [trajectory.turns[0].ranking.evidence_rank for trajectory in trajectories]

    return compute_measures(asyncio.run(roll_out()))


def compute_measures(ranks: Sequence[int | None]) -> dict[str, float]:
    """Hit@1, Hit@3, Hit@10 and MRR@10 from the rank of the best evidence page, None where it is not within `DEPTH`."""
    found = [rank for rank in ranks if rank is not None]
    hits = {f"hit@{k}": round(sum(rank <= k for rank in found) / len(ranks), 4) for k in (1, 3, 10)}
    return {"questions": len(ranks), **hits, f"mrr@{DEPTH}": round(sum(1 / rank for rank in found) / len(ranks), 4)}


def measure_page_set(name: str, data_dir: Path) -> dict[str, Any]:
    """The raw question by our search and by bm25s, published figures, and other baselines for `BASELINE_SETS`."""
    folder, _, pages_name = name.partition("/")
    page_set = read_page_set(require(data_dir / folder), f"{pages_name or 'pages'}.jsonl.gz")
    with tempfile.TemporaryDirectory() as scratch:
        searcher = build_searcher(page_set.pages, Path(scratch))
        names = WITHOUT_MODEL if name in BASELINE_SETS else ("question", "question_keywords")
        measured = {baseline: measure_baseline(BASELINES[baseline](), searcher, page_set.questions) for baseline in names}
        measured["bm25s"] = measure_bm25s(page_set, searcher)
    published = dict(zip(("hit@1", "hit@3", f"mrr@{DEPTH}"), PUBLISHED_PAGE_SETS[name], strict=True))
    references = {"published": published, "bm25s": {key: measured["bm25s"][key] for key in published}}
    differences = {
        f"difference_to_{reference}": {key: round(measured["question"][key] - value, 4) for key, value in values.items()}
        for reference, values in references.items()
    }
    return {"pages": len(page_set.pages), **measured, "published": published, **differences}


def measure_bm25s(page_set: PageSet, searcher: Searcher) -> dict[str, float]:
    """The raw question by bm25s on the same tokens: what of a difference to the published figures is not our search's."""
    pages = sorted(page_set.pages, key=lambda page: (page.file, page.page_number))
    queries = [question.question for question in page_set.questions]
    ranks = []
    found = search_bm25s([page.text for page in pages], queries, searcher, DEPTH)
    for question, rows in zip(page_set.questions, found, strict=True):
        hits = tuple(Hit(pages[row].file, pages[row].page_number, rank, 0.0) for rank, row in enumerate(rows, start=1))
        ranks.append(compute_evidence_rank(hits, question.evidence))
    return compute_measures(ranks)


def measure_retrieval_set(name: str, data_dir: Path) -> dict[str, Any]:
    """Our search, bm25s on the tokens of our analyzer, and RM3, over the queries with judgements."""
    retrieval_set = read_retrieval_set(require(data_dir / "ir" / name))
    queries, judgements = retrieval_set.queries, retrieval_set.judgements
    with tempfile.TemporaryDirectory() as scratch:
        searcher = build_searcher(to_pages(retrieval_set.documents), Path(scratch))
        relevance_model = RelevanceModel(searcher)
        runs = {
            "drag_ray": {key: searcher.search(text, RUN_DEPTH) for key, text in queries.items()},
            "rm3": {key: searcher.search_terms(relevance_model.expand(text), RUN_DEPTH) for key, text in queries.items()},
        }
        scores = {
            engine: {key: {hit.file: hit.score for hit in hits} for key, hits in run.items()} for engine, run in runs.items()
        }
        names = list(retrieval_set.documents)
        found = search_bm25s(list(retrieval_set.documents.values()), list(queries.values()), searcher, RUN_DEPTH)
        scores["bm25s"] = {
            key: {names[row]: score for row, score in hits.items()} for key, hits in zip(queries, found, strict=True)
        }
    measured = {engine: compute_ranking_measures(run, judgements) for engine, run in scores.items()}
    ndcg, published = measured["drag_ray"]["ndcg@10"], PUBLISHED_RETRIEVAL_SETS[name]
    return {
        "documents": len(retrieval_set.documents),
        "queries": len(queries),
        **measured,
        "published": published,
        "difference_to_bm25s": round(ndcg - measured["bm25s"]["ndcg@10"], 4),
        "difference_to_published": round(ndcg - published, 4),
    }


def search_bm25s(texts: Sequence[str], queries: Sequence[str], searcher: Searcher, depth: int) -> list[dict[int, float]]:
    """Scores by place in `texts`, best first, of bm25s in Lucene's form of BM25 on the tokens of our analyzer."""
    import bm25s

    engine = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    engine.index([searcher.analyze(text) for text in texts], show_progress=False)
    found = []
    for query in queries:
        rows, scores = engine.retrieve([searcher.analyze(query)], k=min(depth, len(texts)), show_progress=False)
        pairs = zip(rows[0].tolist(), scores[0].tolist(), strict=True)
        found.append({row: score for row, score in pairs if score > 0})
    return found


def compute_ranking_measures(run: dict[str, dict[str, float]], judgements: dict[str, dict[str, int]]) -> dict[str, float]:
    """Mean nDCG@10 with linear gain and mean average precision to `RUN_DEPTH`."""
    import ir_measures
    from ir_measures import AP, nDCG

    measured = ir_measures.calc_aggregate([nDCG @ 10, AP @ RUN_DEPTH], judgements, run)
    return {"ndcg@10": round(measured[nDCG @ 10], 4), f"ap@{RUN_DEPTH}": round(measured[AP @ RUN_DEPTH], 4)}


def measure_embedded_corpus(index_dir: Path) -> dict[str, Any]:
    """Each baseline on the questions of a finished index stage, all of them and the held-out ones."""
    searcher, questions = open_index(index_dir)
    chosen = {"all": questions, "test": [question for question in questions if question.split == "test"]}
    measured = {
        label: {name: measure_baseline(BASELINES[name](), searcher, subset) for name in WITHOUT_MODEL}
        for label, subset in chosen.items()
    }
    return {"pages": searcher.num_pages, **measured}


def measure_vectors(index_dir: Path) -> dict[str, Any]:
    """The raw question by words, by vectors and by both, on the held-out questions of a finished index stage with vectors."""
    searcher, questions = open_index(index_dir)
    held_out = [question for question in questions if question.split == "test"]
    sources = Sources(EvaluateConfig(), index_dir, seed=0)
    record = PageVectors(index_dir / vectors.DIR_NAME, searcher.record.fingerprint).record
    options = {name: record.embedding[name] for name in ("window_tokens", "overlap_tokens", "dtype")}
    measured = {name: measure_baseline(BASELINES[name].prepare(sources), searcher, held_out) for name in WITH_VECTORS}
    return {
        "pages": searcher.num_pages,
        "model": Path(record.embedding["model"]).name,
        "windows": record.num_windows,
        **options,
        "test": measured,
    }


def open_index(index_dir: Path) -> tuple[Searcher, list[Question]]:
    """The index and the questions of a finished index stage."""
    rows = schemas.read_table(index_dir / "questions.parquet", schemas.QUESTIONS).to_pylist()
    return Searcher(index_dir / "search_index"), [schemas.to_question(row) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="folder of the public sets; left out where it is absent")
    parser.add_argument("--index-dir", type=Path, default=Path("runs/demo/index"), help="folder of a finished index stage")
    parser.add_argument("--vectors", type=Path, nargs="+", metavar="DIR", help="folders of finished index stages with vectors")
    options = parser.parse_args()
    if options.vectors:
        results = {index_dir.resolve().parent.name: measure_vectors(index_dir) for index_dir in options.vectors}
        print(results)
        write_result("search_quality_vectors", {"operator": "or", "analyzer": "english", "depth": DEPTH, "collections": results})
        return
    results: dict[str, Any] = {"operator": "or", "analyzer": "english", "depth": DEPTH}
    if options.data_dir.is_dir():
        for name in PUBLISHED_PAGE_SETS:
            results.setdefault("page_sets", {})[name] = measure_page_set(name, options.data_dir)
            print(name, results["page_sets"][name], flush=True)
        for name in PUBLISHED_RETRIEVAL_SETS:
            results.setdefault("retrieval_sets", {})[name] = measure_retrieval_set(name, options.data_dir)
            print(name, results["retrieval_sets"][name], flush=True)
    else:
        print(f"{options.data_dir}: no such folder; the public sets are left out")
    results["embedded_corpus"] = measure_embedded_corpus(options.index_dir)
    print("embedded corpus", results["embedded_corpus"])
    write_result("search_quality", results)


if __name__ == "__main__":
    main()
