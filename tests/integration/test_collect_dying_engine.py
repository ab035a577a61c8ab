"""A real engine dies: vLLM's engine process is killed while rollouts run, and the stage goes on with another one."""

import contextlib
import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from collecting import build_options
from waiting import wait_until

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.cluster.connection import ClusterConfig, connect
from drag_ray.engine.config import EngineConfig
from drag_ray.rollout import journal, runner
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.failures import ENGINE_DIED
from drag_ray.rollout.folder import PROBLEMS_NAME, RUNNING_DIR_NAME
from drag_ray.rollout.plan import build_plan
from drag_ray.storage import artifacts
from drag_ray.types import Evidence, Question

pytestmark = pytest.mark.slow  # test_collect_faults kills scripted engines

SETTINGS = RolloutConfig(num_engines=1, concurrent_rollouts=6, chunk_rollouts=4, flush_s=0)
WORDS = ("rotor", "spar", "valve", "pump", "flap", "wheel", "wing", "fuel")


def build_rollout_plan() -> list[RolloutTask]:
    """16 rollouts: 8 questions, 2 samples of each."""
    questions = [
        Question(f"q{number}", f"Where is the {word} described?", (Evidence("a.pdf", number),), split="train")
        for number, word in enumerate(WORDS, start=1)
    ]
    return build_plan(questions, ("default",), 2, run_seed=0)


def collect(folder: Path) -> None:
    """Collect with the embedded model, in a driver of its own, and leave the counts in a file."""
    engine = EngineConfig(device="cpu", max_model_len=2048, max_num_seqs=16, enforce_eager=True)
    options = build_options(
        folder,
        [f"The {word}." for word in WORDS],
        agent=AgentConfig(query_mode="rewrite", max_iterations=2, max_tokens=24),
        engine=engine,
        policies={"": Policy(engine.model)},
        concurrent_rollouts=SETTINGS.concurrent_rollouts,
        max_tries=SETTINGS.max_tries,
    )
    with connect(ClusterConfig(num_cpus=2)):
        counts = runner.run_plan(build_rollout_plan(), options, SETTINGS, "collecting")
    artifacts.write_json(folder / "counts.json", counts)


@dataclass(frozen=True)
class Disturbed:
    """A collection whose engine was killed: what was finished then (ids with times), and all of vLLM's processes."""

    folder: Path
    kept: dict[str, str]
    processes: list[psutil.Process]

    @property
    def rows(self) -> list[dict]:
        return journal.read_trajectories(self.folder / "run").to_pylist()


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Disturbed:
    folder = tmp_path_factory.mktemp("disturbed")
    with (folder / "driver.log").open("w") as log:
        driver = subprocess.Popen([sys.executable, __file__, str(folder)], start_new_session=True, stdout=log, stderr=log)
    tree = psutil.Process(driver.pid)
    try:
        wait_until(lambda: len(read_started(folder)) >= 3 and any((folder / "run" / RUNNING_DIR_NAME).iterdir()))
        first = find_vllm_processes(tree)
        [core] = [process for process in first if read_title(process).startswith("VLLM::EngineCore")]
        core.kill()
        kept = read_started(folder)
        wait_until(lambda: len(set(find_vllm_processes(tree)) - set(first)) == len(first))
        processes = [*first, *(set(find_vllm_processes(tree)) - set(first))]
        assert driver.wait(timeout=60) == 0, (folder / "driver.log").read_text()
    finally:
        for process in (tree, *tree.children(recursive=True)) if driver.poll() is None else ():
            process.kill()
        driver.wait()
    return Disturbed(folder, kept, processes)


def test_every_rollout_exists_once_and_those_that_had_finished_are_kept(disturbed: Disturbed) -> None:
    ids = [task.id for task in build_rollout_plan()]
    assert Counter(row["id"] for row in disturbed.rows) == Counter(ids)
    assert 3 <= len(disturbed.kept) < len(ids)
    assert disturbed.kept.items() <= read_started(disturbed.folder).items()
    assert all(row["turns"] and not row["error"] for row in disturbed.rows)


def test_counts_add_up(disturbed: Disturbed) -> None:
    counts = json.loads((disturbed.folder / "counts.json").read_text())
    expected = {"rollouts": 16, "finished": 16, "hinted": 0, "set_aside": 0, "unfinished": 0, "skipped": 0}
    assert {name: counts[name] for name in expected} == expected
    assert counts["turns"] == sum(len(row["turns"]) for row in disturbed.rows)
    assert "collecting 16/16: " in (disturbed.folder / "driver.log").read_text()  # of the line's last state


def test_a_try_has_failed_of_each_rollout_that_the_engine_took_with_it(disturbed: Disturbed) -> None:
    problems = [json.loads(line) for line in (disturbed.folder / "run" / PROBLEMS_NAME).read_text().splitlines()]
    assert 1 <= len(problems) <= SETTINGS.concurrent_rollouts
    assert {(problem["tries"], problem["reason"]) for problem in problems} == {(1, f"{ENGINE_DIED}; finished in a later try")}
    assert not {problem["place"].removeprefix("rollout ") for problem in problems} & set(disturbed.kept)


def test_no_process_of_an_engine_outlives_the_driver(disturbed: Disturbed) -> None:
    gone, alive = psutil.wait_procs(disturbed.processes, timeout=5)
    assert (len(gone), alive) == (4, [])  # of two engines, and of their workers


def read_started(folder: Path) -> dict[str, str]:
    """When each finished rollout was begun: one that is kept keeps its time."""
    return {row["id"]: row["provenance"]["started_at"] for row in journal.read_trajectories(folder / "run").to_pylist()}


def find_vllm_processes(tree: psutil.Process) -> list[psutil.Process]:
    """vLLM's processes below a driver, which say so in their titles: engines and their workers."""
    return [process for process in tree.children(recursive=True) if read_title(process).startswith("VLLM::")]


def read_title(process: psutil.Process) -> str:
    """What a process calls itself; nothing if it has just ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline()[:1])
    return ""


if __name__ == "__main__":
    collect(Path(sys.argv[1]))
