"""Speed of search: this project's search beside Whoosh, bm25s (numba) and SQLite FTS5, in one process and one run.

Every engine answers the same questions of medquad (16,407 pages) with the file, page number and text of the best pages. The
engines take turns, the order changes from round to round, and medians over rounds are kept. CPU time is what counts: on a
machine with other work a fast call fits into a time slice and a slow one does not, so wall times favour the fast engine.
Pyserini needs Java 21 and is left out.

python benchmarks/bench_search_speed.py [--data-dir ../shared/data] [--limit-pages 0] [--questions 300] [--rounds 5]
python benchmarks/bench_search_speed.py --pages 1000000    # this project's search alone, on that many pages
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from public_sets import DATA_DIR, PageSet, read_page_set, require
from record import make_folder, write_result
from search_engines import ENGINES, Engine, FoundPage, SearchFn
from search_scale import measure_scale

from drag_ray.corpus.questions import check_evidence, draw_questions
from drag_ray.types import Question

TOP_K = 3
HIT_TOLERANCE = 0.04
"""Largest difference of Hit@3 at which the engines count as doing the same work: stemmers and word boundaries differ."""
_BUILD_ROUNDS = 3
_THREADS = 2
_WARM_UP_QUESTIONS = 20


def compute_cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measure_builds(engines: Sequence[Engine], page_set: PageSet, scratch: Path) -> dict[str, dict[str, float]]:
    """Build every index `_BUILD_ROUNDS` times, the engines taking turns; the last ones stay in `scratch/NAME`."""
    cpu_s: dict[str, list[float]] = {engine.name: [] for engine in engines}
    wall_s: dict[str, list[float]] = {engine.name: [] for engine in engines}
    for number in range(_BUILD_ROUNDS):
        for engine in rotate(engines, number):
            folder = scratch / f"{engine.name}-{number}"
            folder.mkdir()
            engine.prepare(page_set.pages, folder)
            cpu_started, started = compute_cpu_s(), time.perf_counter()
            engine.build(page_set.pages, folder)
            cpu_s[engine.name].append(compute_cpu_s() - cpu_started)
            wall_s[engine.name].append(time.perf_counter() - started)
            if number == _BUILD_ROUNDS - 1:
                folder.replace(scratch / engine.name)
    return {
        engine.name: {
            "cpu_s": round(median(cpu_s[engine.name]), 3),
            "wall_s": round(median(wall_s[engine.name]), 3),
            "index_mb": round(compute_size_bytes(scratch / engine.name) / 1e6, 1),
        }
        for engine in engines
    }


def measure_queries(
    searches: dict[str, SearchFn], questions: Sequence[Question], num_rounds: int
) -> tuple[dict[str, dict[str, float]], dict[str, list[float]]]:
    """One thread. Returns the figures of each engine and its queries per CPU second in each round."""
    rates: dict[str, list[float]] = {name: [] for name in searches}
    latencies: dict[str, list[tuple[float, float]]] = {name: [] for name in searches}
    found: dict[str, float] = {}
    for number in range(num_rounds):
        for name, search in rotate(list(searches.items()), number):
            cpu_started = time.process_time()
            answers = [time_query(search, question.question) for question in questions]
            rates[name].append(len(questions) / (time.process_time() - cpu_started))
            latencies[name] += [(wall_ms, cpu_ms) for _, wall_ms, cpu_ms in answers]
            found[name] = compute_hit_share([pages for pages, _, _ in answers], questions)
    figures = {}
    for name, pairs in latencies.items():
        wall_ms, cpu_ms = zip(*pairs, strict=True)
        figures[name] = {
            "queries_per_cpu_s": round(median(rates[name]), 1),
            "p50_ms": compute_percentile(wall_ms, 50),
            "p99_ms": compute_percentile(wall_ms, 99),
            "p50_cpu_ms": compute_percentile(cpu_ms, 50),
            "p99_cpu_ms": compute_percentile(cpu_ms, 99),
            "hit@3": round(found[name], 4),
        }
    return figures, rates


def time_query(search: SearchFn, text: str) -> tuple[list[FoundPage], float, float]:
    """The result of a search, and its milliseconds of wall time and of this thread's CPU time."""
    cpu_started, started = time.thread_time_ns(), time.perf_counter_ns()
    pages = search(text, TOP_K)
    return pages, (time.perf_counter_ns() - started) / 1e6, (time.thread_time_ns() - cpu_started) / 1e6


def compute_hit_share(answers: Sequence[list[FoundPage]], questions: Sequence[Question]) -> float:
    """The share of the questions with an evidence page among the pages found."""
    hits = 0
    for pages, question in zip(answers, questions, strict=True):
        evidence = {(item.file, item.page_number) for item in question.evidence}
        hits += any((file, page_number) in evidence for file, page_number, _ in pages)
    return hits / len(questions)


def measure_threads(
    engines: Sequence[Engine], scratch: Path, questions: Sequence[Question], num_rounds: int
) -> dict[str, dict[str, float]]:
    """`_THREADS` threads that share the questions: queries per second of wall and of CPU time."""
    texts = [question.question for question in questions]
    rates: dict[str, list[tuple[float, float]]] = {engine.name: [] for engine in engines}
    readers = {engine.name: [engine.open(scratch / engine.name) for _ in range(_THREADS)] for engine in engines}

    def ask(search: SearchFn, share: Sequence[str]) -> None:
        for text in share:
            search(text, TOP_K)

    for searches in readers.values():
        for search in searches:
            ask(search, texts[:_WARM_UP_QUESTIONS])
    with ThreadPoolExecutor(_THREADS) as pool:
        for number in range(num_rounds):
            for engine in rotate(engines, number):
                cpu_started, started = time.process_time(), time.perf_counter()
                list(pool.map(ask, readers[engine.name], [texts[start::_THREADS] for start in range(_THREADS)]))
                wall, cpu = time.perf_counter() - started, time.process_time() - cpu_started
                rates[engine.name].append((len(texts) / wall, len(texts) / cpu))
    return {
        name: {
            "queries_per_s": round(median(rate[0] for rate in pairs), 1),
            "queries_per_cpu_s": round(median(rate[1] for rate in pairs), 1),
        }
        for name, pairs in rates.items()
    }


def compare_with(reference: str, rates: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Queries per CPU second of each engine over those of the reference in the same round: median, lowest, highest."""
    ratios = {name: [a / b for a, b in zip(values, rates[reference], strict=True)] for name, values in rates.items()}
    return {
        name: {"median": round(median(values), 3), "min": round(min(values), 3), "max": round(max(values), 3)}
        for name, values in ratios.items()
    }


def rotate(items: Sequence[Any], number: int) -> list[Any]:
    """The items in an order that begins with another one each round."""
    start = number % len(items)
    return [*items[start:], *items[:start]]


def compute_percentile(values: Sequence[float], percent: int) -> float:
    """A percentile, to a tenth of a microsecond where the values are milliseconds."""
    return round(quantiles(values, n=100, method="inclusive")[percent - 1], 4)


def compute_size_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def read_medquad(data_dir: Path, limit_pages: int) -> PageSet:
    """medquad, or its first pages with the questions that they answer."""
    page_set = read_page_set(require(data_dir / "medquad"))
    if not limit_pages:
        return page_set
    pages = page_set.pages[:limit_pages]
    return PageSet(pages, check_evidence(page_set.questions, {(page.file, page.page_number) for page in pages})[0])


def measure_engines(page_set: PageSet, options: argparse.Namespace) -> dict[str, Any]:
    """Everything but the large index."""
    engines = [ENGINES[name]() for name in options.engines]
    questions = draw_questions(page_set.questions, options.questions, seed=0)
    tail_questions = draw_questions(page_set.questions, options.tail_questions, seed=1)
    with tempfile.TemporaryDirectory(dir=options.scratch_dir) as folder:
        scratch = Path(folder)
        builds = measure_builds(engines, page_set, scratch)
        print("builds", builds, flush=True)
        searches = {engine.name: engine.open(scratch / engine.name) for engine in engines}
        for search in searches.values():
            for question in questions[:_WARM_UP_QUESTIONS]:
                search(question.question, TOP_K)
        queries, rates = measure_queries(searches, questions, options.rounds)
        print("queries", queries, flush=True)
        fast = {name: search for name, search in searches.items() if name in ("drag_ray", "bm25s_numba")}
        tail, _ = measure_queries(fast, tail_questions, options.rounds)
        threads = measure_threads(engines, scratch, questions, max(1, options.rounds // 2))
    hits = [figures["hit@3"] for figures in queries.values()]
    return {
        "pages": len(page_set.pages),
        "questions": len(questions),
        "rounds": options.rounds,
        "top_k": TOP_K,
        "builds": builds,
        "one_thread": queries,
        "times_whoosh": compare_with("whoosh", rates) if "whoosh" in rates else {},
        "times_bm25s": compare_with("bm25s_numba", rates) if "bm25s_numba" in rates else {},
        "equal_hit@3": max(hits) - min(hits) <= HIT_TOLERANCE,
        "tail_questions": len(tail_questions),
        "one_thread_tail": tail,
        f"{_THREADS}_threads": threads,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="folder of the public sets")
    parser.add_argument("--scratch-dir", type=make_folder, default=None, help="where the indexes are built")
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES), help="engines to compare")
    parser.add_argument("--limit-pages", type=int, default=0, help="pages to take, for a quick try; 0 takes all")
    parser.add_argument("--questions", type=int, default=300, help="questions that every engine answers in a round")
    parser.add_argument("--tail-questions", type=int, default=3_000, help="questions for the tail of the fast engines")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of queries")
    parser.add_argument("--pages", type=int, default=0, help="measure this project alone on so many pages")
    parser.add_argument("--result", default="", help="name of the result; by default search_speed or search_scale")
    options = parser.parse_args()
    page_set = read_medquad(options.data_dir, options.limit_pages)
    if options.pages:
        questions = draw_questions(page_set.questions, options.tail_questions, seed=1)
        results = measure_scale(page_set.pages, [question.question for question in questions], options.pages, options.scratch_dir)
    else:
        results = measure_engines(page_set, options)
    print(results)
    write_result(options.result or ("search_scale" if options.pages else "search_speed"), results)


if __name__ == "__main__":
    main()
