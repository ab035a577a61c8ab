"""A collection whose engine is a script: each rollout searches for the word of its question, and gives it as its answer."""

import asyncio
import random
import re
from pathlib import Path

import polars as pl

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import Generation, Request
from drag_ray.rollout.folder import TRAJECTORIES_DIR_NAME
from drag_ray.rollout.options import BuildEngine, WorkerOptions
from drag_ray.rollout.plan import build_plan
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.storage import artifacts
from drag_ray.types import Evidence, Page, Question

NUM_WORDS = 2000
"""pages, each with a word of its own, which the questions ask for"""
SAMPLES = 4


def build_word(number: int) -> str:
    """The word of a page, which no other page has."""
    return f"valve{number % NUM_WORDS}"


def build_question(number: int) -> str:
    return f"Which page describes {build_word(number)}?"


def write_index(folder: Path, edition: int = 0, num_each: int = 1) -> None:
    """The search index of the pages, so many of each word, as the index stage names it."""
    words = [build_word(number) for number in range(NUM_WORDS)]
    pages = [
        Page(f"{word}.pdf", number, num_each, f"The {word} of the pump, edition {edition}.")
        for word in words
        for number in range(1, num_each + 1)
    ]
    artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    build_index(folder / "pages.parquet", folder / "search_index", SearchConfig())


def plan_rollouts(num_rollouts: int) -> list[RolloutTask]:
    """So many rollouts, `SAMPLES` a question."""
    questions = [
        Question(f"q{number}", build_question(number), (Evidence(f"{build_word(number)}.pdf", 1),), split="train")
        for number in range(num_rollouts // SAMPLES)
    ]
    return build_plan(questions, ("default",), SAMPLES, run_seed=0)


def build_options(folder: Path, concurrent: int, build_engine: BuildEngine) -> WorkerOptions:
    """The options of the workers: rollouts of two turns on the index in `folder`, kept in its `run`."""
    return WorkerOptions(
        run_dir=folder / "run",
        index_dir=folder / "search_index",
        agent=AgentConfig(query_mode="rewrite", max_iterations=2),
        engine=EngineConfig(device="cpu"),
        policies={"": Policy("scripted")},
        concurrent_rollouts=concurrent,
        flush_s=5,
        build_engine=build_engine,
    )


class PatientEngine:
    """Writes the word of the question, at first as a search and then as the answer, after about `delay_s`.

    When it has nothing to do it notes in `path` how many requests it has had at once.
    """

    def __init__(self, path: Path, delay_s: float) -> None:
        self._path, self._delay_s = path, delay_s
        self._running = self._peak = 0

    async def __call__(self, request: Request) -> Generation:
        self._running += 1
        self._peak = max(self._peak, self._running)
        await asyncio.sleep(self._delay_s * random.Random(request.seed).uniform(0.5, 1.5))
        self._running -= 1
        if not self._running:
            self._path.write_text(str(self._peak))
        [word] = set(re.findall(r"valve\d+", str(request.messages[1]["content"])))
        is_first = all(message["role"] != "assistant" for message in request.messages)
        return Generation(f"<search>{word}</search>" if is_first else f"<answer>{word}</answer>", (1, 2), (3,), "stop")


def count_rollouts(run_dir: Path, planned: set[str]) -> dict[str, int]:
    """Counts of the rollouts of a plan by their outcome."""
    rows = pl.read_parquet(run_dir / TRAJECTORIES_DIR_NAME / "*.parquet", columns=["id", "question", "turns", "error"])
    words = pl.col("question").str.extract(r"(valve\d+)")
    first, last = pl.col("turns").list.first().struct, pl.col("turns").list.last().struct
    is_found = first.field("ranking").struct.field("evidence_rank") == 1
    is_own = (first.field("query") == words) & is_found & (last.field("answer").struct.field("text") == words)
    kept = rows["id"].to_list()
    return {
        "rollouts": len(planned),
        "kept": len(kept),
        "lost": len(planned - set(kept)),
        "kept_twice": len(kept) - len(set(kept)),
        "failed": rows.filter(pl.col("error") != "").height,
        "of_another_question": rows.filter(~is_own.fill_null(False)).height,
    }
