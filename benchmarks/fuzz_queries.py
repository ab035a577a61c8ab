"""Hostile queries against every syntax, in a child process, so that a crash of the search engine's native code is seen.

python benchmarks/fuzz_queries.py [--queries 1000000] [--seed 0]

Half of the queries are random characters of many scripts, half are made from the grammars: words of the pages, operators,
quotes, brackets, wildcards, ranges, field names and their broken forms. Each goes through one of the five ways to read it.
Failures are counted by kind and the first one is printed. The exit status is 1 if there was any, or the child died. The counts
are kept in `results/fuzz_queries.json`.
"""

import argparse
import json
import multiprocessing
import random
import re
import tempfile
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from record import write_result

from drag_ray import schemas
from drag_ray.search.config import Operator, SearchConfig, Syntax
from drag_ray.search.index import build_index
from drag_ray.search.searcher import Searcher
from drag_ray.storage import artifacts
from drag_ray.types import Page

PAGES = (
    "The apache helicopter has a main rotor.",
    "Maintenance of the tail rotor: check the oil.",
    "Maximum speed of the CH-47 is 170 knots.",
    "Größe der Rotoren, naïve café, 東京大学",
)
ALPHABETS = (
    "abcde rotor ",
    "()[]{}\"'*?^~:+-&|!\\/ ",
    'AND OR NOT TO rotor()" ',
    "*?a",
    "\x00\x01\t\n\r\x0b\x1c\u2028\u200b\ufeff\ud800\udfff ",
    "äßçñøŁżğİıдемжשלוםسلامहिन्दी東京한국어😀👩‍👩‍👧 ",
)
PIECES = re.findall(
    r"\S+",
    """rotor tail oil the of not NOT AND OR ANDNOT ANDMAYBE REQUIRE TO to maint* roto? *tor * ** ? *:* CH-47? file:a text:rotor
    text: foo: row:0 2019 oil^2 ^ ^9999999999999999999999 rotor^.5 'tail '' ' " "" ( ) (( )) )^2 [ ] { } [a [to] -2019 +rotor
    r[ao]tor* [!a]* [ []* [a-] [z-a]* \\ Größe* 東京 東* foo_bar e.g. a,b;c ~ ~2 : *a?????* ???????????????????? NOT_NOT
    "tail_rotor" "the_rotor"~99999999 "a_b_c_d_e_f_g_h_i_j"~9 [a_TO_z] {TO} ['a'_TO_'b'}""",
)
"""An underscore becomes a space."""
WAYS: tuple[tuple[Syntax, Operator], ...] = (
    ("words", "or"),
    ("words", "and"),
    ("query", "or"),
    ("query", "and"),
    ("query", "and"),
)
_REPORT_EVERY = 2_000


def make_query(rng: random.Random) -> str:
    """A random query; now and then a very long or a very deep one."""
    kind = rng.random()
    if kind < 0.002:
        return rng.choice(("(", "NOT ", '"', "[to", "*", "a ", "(a OR ", "'", "x", "a AND (")) * rng.randint(1, 3_000)
    if kind < 0.5:
        letters = rng.choice(ALPHABETS) if rng.random() < 0.7 else "".join(ALPHABETS)
        return "".join(rng.choice(letters) for _ in range(rng.randint(0, 40)))
    joint = rng.choice((" ", " ", " ", ""))
    query = joint.join(rng.choice(PIECES).replace("_", " ") for _ in range(rng.randint(1, 10)))
    return f"({query})^2" if rng.random() < 0.1 else query


def build_searchers(folder: Path) -> list[Searcher]:
    """A searcher for each way to read a query."""
    pages = [Page(f"{number}.pdf", 1, 1, text) for number, text in enumerate(PAGES)]
    artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    for analyzer in ("english", "plain", "cjk"):
        build_index(folder / "pages.parquet", folder / analyzer, SearchConfig(analyzer=analyzer))
    analyzers = ("english", "english", "english", "cjk", "plain")
    return [Searcher(folder / analyzer, operator, syntax) for analyzer, (syntax, operator) in zip(analyzers, WAYS, strict=True)]


def search_all(num_queries: int, seed: int, reports: Connection) -> None:
    """Run the queries and report how far they are, what failed, and what took longest."""
    rng = random.Random(seed)
    failures: Counter[str] = Counter()
    slowest = (0.0, "")
    with tempfile.TemporaryDirectory() as folder:
        searchers = build_searchers(Path(folder))
        for number in range(1, num_queries + 1):
            query = make_query(rng)
            way = rng.randrange(len(WAYS))
            started = time.process_time()
            try:
                hits = searchers[way].search(query, 3)
                assert len(hits) <= 3
            except BaseException as error:  # a panic of the native code derives from BaseException
                if not failures:
                    print(f"{WAYS[way]}: {error!r} for {query!r}", flush=True)
                failures[type(error).__name__] += 1
            slowest = max(slowest, (time.process_time() - started, query))
            if number % _REPORT_EVERY == 0 or number == num_queries:
                reports.send((number, dict(failures), slowest))


def fuzz(num_queries: int, seed: int) -> dict[str, Any]:
    """Run so many queries in a child process: how many it got through, what failed, its exit code, and the slowest."""
    reports, far_end = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("spawn").Process(target=search_all, args=(num_queries, seed, far_end))
    started = time.perf_counter()
    child.start()
    far_end.close()
    number, failures, slowest = 0, {}, (0.0, "")
    while True:
        try:
            number, failures, slowest = reports.recv()
        except EOFError:
            break
    child.join()
    return {
        "queries": number,
        "failures": failures,
        "exit_code": child.exitcode,
        "slowest_cpu_ms": round(slowest[0] * 1000, 1),
        "slowest_query": slowest[1][:80],
        "seed": seed,
        "seconds": round(time.perf_counter() - started, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=1_000_000, help="how many")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    result = fuzz(options.queries, options.seed)
    print(json.dumps(result))
    write_result("fuzz_queries", result)
    raise SystemExit(bool(result["failures"] or result["exit_code"] or result["queries"] < options.queries))


if __name__ == "__main__":
    main()
