"""Engines that stay up between the stages of a pipeline: the same process writes for all of them, each time with the policies of
the stage, and when it dies another one takes its place."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from adapters import make_adapter

from drag_ray import artifacts, schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.rollout import Policy, RolloutTask
from drag_ray.cluster import ClusterConfig, connect, free_gpus
from drag_ray.engine.config import EngineConfig
from drag_ray.rollout import journal
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.kept_engines import keep_engines
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.plan import build_plan
from drag_ray.rollout.runner import run_plan
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.types import Evidence, Page, Question

SETTINGS = RolloutConfig(num_engines=1, concurrent_rollouts=8, chunk_rollouts=4, flush_s=0)
WORDS = ("rotor", "spar", "valve", "pump", "flap", "wheel")
ENGINE = EngineConfig(device="cpu", dtype="float32", max_model_len=1024, max_num_seqs=16, enforce_eager=True)


def build_rollout_plan() -> list[RolloutTask]:
    questions = [
        Question(f"q{number}", f"Where is the {word} described?", (Evidence("a.pdf", number),), split="train")
        for number, word in enumerate(WORDS, start=1)
    ]
    return build_plan(questions, ("greedy",), 1, run_seed=0)


@dataclass
class Stages:
    """Stages that roll out the same questions, and the process of the engine that each of them left behind."""

    folder: Path

    def roll_out(self, name: str, adapter: str, logprobs: bool = True) -> tuple[list[str], psutil.Process]:
        """The first replies with an adapter in the order of the questions, and the engine's process."""
        engine = ENGINE.model_copy(update={"adapter": adapter, "logprobs": logprobs})
        options = WorkerOptions(
            run_dir=self.folder / name,
            index_dir=self.folder / "index",
            agent=AgentConfig(max_iterations=1, max_tokens=12),
            engine=engine,
            policies={"": Policy(engine.model, adapter)},
            concurrent_rollouts=SETTINGS.concurrent_rollouts,
            flush_s=SETTINGS.flush_s,
            max_tries=SETTINGS.max_tries,
        )
        counts = run_plan(build_rollout_plan(), options, SETTINGS, name)
        assert counts["finished"] == len(WORDS)
        rows = journal.read_trajectories(options.run_dir).to_pylist()
        turns = [row["turns"][0] for row in sorted(rows, key=lambda row: row["id"])]
        assert all(bool(turn["completion_logprobs"]) is logprobs for turn in turns)
        [process] = find_engines()
        return [turn["raw_text"] for turn in turns], process


def find_engines() -> list[psutil.Process]:
    """vLLM's processes below this one that hold a model."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [process] if process.cmdline()[:1] == ["VLLM::EngineCore"] else []
    return found


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    folder = tmp_path_factory.mktemp("kept")
    pages = [Page("a.pdf", number, len(WORDS), f"The {word}.") for number, word in enumerate(WORDS, start=1)]
    artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    build_index(folder / "pages.parquet", folder / "index", SearchConfig())
    with connect(ClusterConfig(num_cpus=2)):
        with keep_engines():
            yield Stages(folder)
        assert not find_engines()


def test_stages_share_an_engine_that_writes_with_their_own_adapters_and_is_replaced_when_it_dies(stages: Stages) -> None:
    first, second = (make_adapter(stages.folder / name, seed) for seed, name in enumerate(("first", "second")))
    replies, engine = stages.roll_out("one", first)
    others, same_engine = stages.roll_out("two", second, logprobs=False)
    assert same_engine == engine
    assert all(reply != other for reply, other in zip(replies, others, strict=True))
    engine.kill()
    again, another_engine = stages.roll_out("three", first)
    assert another_engine != engine
    assert again == replies
    assert free_gpus() == 1  # there is none to share
