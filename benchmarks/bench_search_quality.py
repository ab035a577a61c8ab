"""How well the raw question finds its page on the embedded corpus: the baseline that a trained policy has to beat.

python benchmarks/bench_search_quality.py [--index-dir runs/demo/index]
"""

import argparse
import time
from pathlib import Path

from record import write_result

from drag_ray import schemas
from drag_ray.agent.environment import compute_evidence_rank
from drag_ray.search.searcher import Searcher

DEPTH = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index-dir", type=Path, default=Path("runs/demo/index"), help="folder of a finished index stage")
    index_dir = parser.parse_args().index_dir
    searcher = Searcher(index_dir / "search_index")
    questions = [
        schemas.to_question(row) for row in schemas.read_table(index_dir / "questions.parquet", schemas.QUESTIONS).to_pylist()
    ]
    results = {}
    for label, chosen in (("all", questions), ("test", [question for question in questions if question.split == "test"])):
        started = time.perf_counter()
        ranks = [compute_evidence_rank(tuple(searcher.search(item.question, DEPTH)), item.evidence) for item in chosen]
        seconds = time.perf_counter() - started
        found = [rank for rank in ranks if rank is not None]
        results[label] = {
            "questions": len(chosen),
            **{f"hit@{k}": round(sum(rank <= k for rank in found) / len(chosen), 4) for k in (1, 3, 10)},
            f"mrr@{DEPTH}": round(sum(1 / rank for rank in found) / len(chosen), 4),
            "ms_per_query": round(1000 * seconds / len(chosen), 4),
        }
        print(label, results[label])
    write_result(
        "search_quality", {"pages": searcher.num_pages, "operator": "or", "analyzer": searcher.record.analyzer, **results}
    )


if __name__ == "__main__":
    main()
