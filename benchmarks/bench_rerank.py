"""One warm engine for all windows of a reranking, beside an engine that is started anew for each window, on the same requests.

python benchmarks/bench_rerank.py [--lists 8] [--candidates 20] [--window 8] [--step 4]

V-Retrver restarts its engine for each window (docs/tools.md). Here the embedded model puts lists of words in order, of which it
knows nothing: what is measured is time.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from record import write_result

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig, RerankOptions
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import Generation, Request
from drag_ray.engine.vllm import VllmEngine
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.searcher import Searcher
from drag_ray.storage import artifacts
from drag_ray.types import Evidence, Page, Question

WORDS = ("rotor", "blade", "fuel", "oil", "wing", "gear", "speed", "flight", "engine", "valve", "pump", "door", "seat", "lamp")
MAX_TOKENS = 24


def build_environment(folder: Path, num_pages: int, depth: int) -> tuple[SearchEnvironment, list[Page]]:
    """Pages of a few words each, and their index."""
    draw = random.Random(0)
    pages = [Page(f"{number}.pdf", 1, 1, " ".join(draw.choices(WORDS, k=12))) for number in range(num_pages)]
    artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    build_index(folder / "pages.parquet", folder / "index", SearchConfig())
    return SearchEnvironment(Searcher(folder / "index"), top_k=3, depth=depth), pages


async def order_lists(rollouts: Rollouts, questions: Sequence[Question]) -> int:
    """Order all lists at once; returns the number of windows."""
    tasks = [RolloutTask(question, 0, "greedy", 0) for question in questions]
    done = await asyncio.gather(*(rollouts.run(task) for task in tasks))
    assert not [one.error for one in done if one.error], done[0].error
    return sum(len(one.turns) for one in done)


async def reply_to_all(engine: VllmEngine, requests: Sequence[Request]) -> None:
    """The replies of one window of all lists."""
    await asyncio.gather(*(engine(request) for request in requests))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of both ways."""
    config = EngineConfig(dtype="bfloat16", max_model_len=4096, enforce_eager=True, logprobs=False)
    rerank = RerankOptions(candidates=options.candidates, window=options.window, step=options.step)
    agent = AgentConfig(task="rerank", rerank=rerank, depth=options.candidates, thinking=False, max_tokens=MAX_TOKENS)
    by_window: dict[int, list[Request]] = {}
    with tempfile.TemporaryDirectory(prefix="drag-ray-bench-") as folder:
        environment, pages = build_environment(Path(folder), options.lists * options.candidates, options.candidates)
        questions = [
            Question(f"q{place}", f"{WORDS[place % len(WORDS)]} and speed", (), candidates=tuple(map(to_evidence, listed)))
            for place, listed in enumerate(pages[start :: options.lists] for start in range(options.lists))
        ]
        started = time.perf_counter()
        engine = VllmEngine(config)
        start_s = time.perf_counter() - started

        async def generate(request: Request) -> Generation:
            by_window.setdefault(sum(message["role"] == "assistant" for message in request.messages), []).append(request)
            return await engine(request)

        rollouts = Rollouts(agent, Policy("smollm2"), generate, environment, "bench")
        num_windows = asyncio.run(order_lists(rollouts, questions))
        engine.close()
        warm_s = time.perf_counter() - started
    started = time.perf_counter()
    for requests in by_window.values():
        engine = VllmEngine(config)
        asyncio.run(reply_to_all(engine, requests))
        engine.close()
    restarted_s = time.perf_counter() - started
    return {
        "model": config.model,
        "lists": options.lists,
        "candidates": options.candidates,
        "windows_per_list": num_windows // options.lists,
        "replies": num_windows,
        "engine_start_s": round(start_s, 1),
        "one_engine_s": round(warm_s, 1),
        "an_engine_a_window_s": round(restarted_s, 1),
        "times_faster": round(restarted_s / warm_s, 2),
    }


def to_evidence(page: Page) -> Evidence:
    """The page's name."""
    return Evidence(page.file, page.page_number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", type=int, default=8)
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--window", type=int, default=8)
    parser.add_argument("--step", type=int, default=4)
    write_result("rerank_engine", measure(parser.parse_args()))


if __name__ == "__main__":
    main()
