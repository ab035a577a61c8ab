"""Milliseconds of a search over HTTP, and what is found, as clients of a running endpoint see it.

python benchmarks/bench_search_endpoint.py INDEX [--url http://127.0.0.1:8000] [--models question,tuned] [--questions 100]
    [--clients 1,8]

INDEX is the folder of the index stage that the endpoint serves, whose test questions are asked of `/v1/search`, one at a time and
several at once. `question` as a model is the question by itself: no model writes a search.
"""

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from record import write_result

from drag_ray.corpus.questions import draw_split
from drag_ray.serve.client import EndpointClient
from drag_ray.serve.ingress.key import KEY_VARIABLE
from drag_ray.types import Evidence, Question

SEED = 0


def ask(client: EndpointClient, model: str, question: Question) -> tuple[float, int]:
    """The milliseconds of a search, and the rank of the best evidence page among its pages, 0 for none."""
    started = time.perf_counter()
    answer = client.search(question=question.question, model=model)
    waited = (time.perf_counter() - started) * 1000
    found = (page["rank"] for page in answer["pages"] if Evidence(page["file"], page["page_number"]) in question.evidence)
    return waited, next(found, 0)


def measure(client: EndpointClient, model: str, questions: list[Question], num_clients: int) -> dict[str, Any]:
    """Times and measures of all questions."""
    started = time.perf_counter()
    with ThreadPoolExecutor(num_clients) as pool:
        answers = list(pool.map(lambda question: ask(client, model, question), questions))
    seconds = time.perf_counter() - started
    waited, ranks = np.array([ms for ms, _ in answers]), np.array([rank for _, rank in answers])
    median, late = np.percentile(waited, [50, 95])
    return {
        "model": model,
        "clients": num_clients,
        "median_ms": round(float(median), 1),
        "p95_ms": round(float(late), 1),
        "searches_s": round(len(questions) / seconds, 2),
        "hit1": round(float((ranks == 1).mean()), 4),
        "mrr": round(float(np.where(ranks > 0, 1 / np.maximum(ranks, 1), 0).mean()), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path, help="folder of the index stage")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--models", type=lambda text: text.split(","), default=["question"])
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--clients", type=lambda text: [*map(int, text.split(","))], default=[1, 8])
    options = parser.parse_args()
    questions = draw_split(options.index, "test", options.questions, SEED)
    client = EndpointClient(options.url, os.environ.get(KEY_VARIABLE, ""))
    rows = []
    for model in options.models:
        for question in questions[:5]:  # what is read for the first time is read from the disk
            ask(client, model, question)
        for num_clients in options.clients:
            rows.append(measure(client, model, questions, num_clients))
            print(rows[-1], flush=True)
    write_result("search_endpoint", {"questions": len(questions), "searches": rows})


if __name__ == "__main__":
    main()
