"""Stages that roll out the same few questions, one after the other."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from collecting import build_options

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.task import Policy
from drag_ray.engine.config import EngineConfig
from drag_ray.rollout import journal
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.plan import build_plan
from drag_ray.rollout.runner import run_plan
from drag_ray.types import Evidence, Question

SETTINGS = RolloutConfig(num_engines=1, workers_per_engine=2, concurrent_rollouts=8, chunk_rollouts=4, flush_s=0)
WORDS = ("rotor", "spar", "valve", "pump", "flap", "wheel")


@dataclass(frozen=True)
class Stages:
    """Stages in a folder of theirs, whose index is made here."""

    folder: Path
    engine: EngineConfig

    def roll_out(self, name: str, adapter: str = "", logprobs: bool = True) -> list[str]:
        """The first replies with an adapter, in the order of the questions."""
        engine = self.engine.model_copy(update={"adapter": adapter, "logprobs": logprobs})
        options = build_options(
            self.folder,
            [f"The {word}." for word in WORDS],
            run_dir=self.folder / name,
            agent=AgentConfig(max_iterations=1, max_tokens=12),
            engine=engine,
            policies={"": Policy(engine.model, adapter)},
            concurrent_rollouts=SETTINGS.concurrent_rollouts,
            max_tries=SETTINGS.max_tries,
        )
        questions = [
            Question(f"q{number}", f"Where is the {word} described?", (Evidence("a.pdf", number),), split="train")
            for number, word in enumerate(WORDS, start=1)
        ]
        counts = run_plan(build_plan(questions, ("greedy",), 1, run_seed=0), options, SETTINGS, name)
        assert counts["finished"] == len(WORDS)
        rows = sorted(journal.read_trajectories(options.run_dir).to_pylist(), key=lambda row: row["id"])
        assert all(bool(row["turns"][0]["reply"]["completion_logprobs"]) is logprobs for row in rows)
        return [row["turns"][0]["raw_text"] for row in rows]


def find_engines() -> Sequence[psutil.Process]:
    """vLLM's processes below this one that hold a model."""
    found: list[psutil.Process] = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [process] if process.cmdline()[:1] == ["VLLM::EngineCore"] else []
    return found
