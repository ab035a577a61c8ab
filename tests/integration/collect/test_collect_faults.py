"""Nothing is lost: engines, nodes and drivers are killed, files are damaged, the disk is filled; then each rollout exists once.

The stage runs through Ray Data as always; only the engine is scripted, so that a case takes seconds. What each engine is
to do wrong it is told by its `fault`, which is called before each reply.
"""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import collecting
import pytest
import ray
from collecting import read_problems
from ray.cluster_utils import Cluster
from ray_nodes import start_ray
from scripted_engine import ScriptedEngine
from waiting import wait_until

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.agent.task import RolloutTask
from drag_ray.cluster.connection import ClusterConfig, connect, ensure_token
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import ImageSource, Request
from drag_ray.errors import ArtifactError, ConfigError, DragRayError, EngineDiedError, RolloutError, TooManyFailuresError
from drag_ray.rollout import journal, runner
from drag_ray.rollout.config import RolloutConfig, ToolHostConfig
from drag_ray.rollout.failures import ENGINE_DIED
from drag_ray.rollout.folder import RUNNING_DIR_NAME
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.plan import build_plan
from drag_ray.types import Evidence, Question

DISK_MIB = 1
SETTINGS = RolloutConfig(num_engines=1, concurrent_rollouts=4, chunk_rollouts=3, flush_s=0)
TWO_ENGINES = SETTINGS.model_copy(update={"num_engines": 2})
"""Where one of them goes on while the other does not."""
WORDS = ("rotor", "spar", "valve", "pump", "flap")
Fault = Callable[[Request], None]


def build_rollout_plan() -> list[RolloutTask]:
    """24 rollouts: 8 questions, 3 samples of each."""
    evidence = (Evidence("a.pdf", 1),)
    questions = [Question(f"q{number}", f"question {number}?", evidence, split="train") for number in range(8)]
    return build_plan(questions, ("default",), 3, run_seed=0)


def build_options(folder: Path, fault: Fault | None = None, delay_s: float = 0.05) -> WorkerOptions:
    """Options of a run whose engine searches twice for words that its seed chooses."""
    words = WORDS  # what is pickled must not refer to this module, which the workers cannot import

    def reply(request: Request) -> str:
        if fault:
            fault(request)
        return f"<search>{words[request.seed % len(words)]}</search>"

    return collecting.build_options(
        folder,
        [f"{word} {WORDS[0]}" for word in WORDS],
        agent=AgentConfig(query_mode="rewrite", max_iterations=2),
        max_tries=SETTINGS.max_tries,
        build_engine=lambda config, images, adapters: ScriptedEngine(reply, delay_s),
    )


def kill_once(flag: Path, question: str = "question 3?") -> Fault:
    """SIGKILL for the engine's process at the first reply to `question`."""

    def fault(request: Request) -> None:
        if question in str(request.messages) and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return fault


def collect(options: WorkerOptions, settings: RolloutConfig = SETTINGS) -> dict[str, int]:
    return runner.run_plan(build_rollout_plan(), options, settings, "collecting")


def read_rows(folder: Path) -> list[dict]:
    return journal.read_trajectories(folder / "run").to_pylist()


def read_started(folder: Path) -> dict[str, str]:
    """The time at which each finished rollout was begun: one that is kept keeps its time."""
    return {row["id"]: row["provenance"]["started_at"] for row in read_rows(folder)}


def summarise(rows: list[dict]) -> dict[str, list]:
    """The replies of each rollout and the pages that they led to: no fault may change them."""
    return {row["id"]: [(turn["raw_text"], turn["ranking"]["hits"]) for turn in row["turns"]] for row in rows}


def check_whole(folder: Path, expected: dict[str, list], counts: dict[str, int]) -> None:
    """Each rollout is there once, as in a run that nothing happened to, and the counts say so."""
    rows = read_rows(folder)
    assert Counter(row["id"] for row in rows) == Counter(list(expected))
    assert summarise(rows) == expected
    assert (counts["finished"], counts["set_aside"], counts["unfinished"]) == (len(expected), 0, 0)
    assert counts["turns"] == 2 * len(expected)


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    # Two for engines, and two for those of a run that failed: pytest keeps what is logged, Ray's error among it.
    with start_ray({}, num_cpus=4) as address, connect(ClusterConfig(address=address)):
        yield


@pytest.fixture(scope="module")
def undisturbed(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing happens to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    counts = collect(build_options(folder))
    assert (counts["finished"], counts["unfinished"]) == (24, 0)
    assert read_problems(folder / "run") == []
    return folder


@pytest.fixture(scope="module")
def expected(undisturbed: Path) -> dict[str, list]:
    """The outcome of an undisturbed run."""
    return summarise(read_rows(undisturbed))


def test_an_engine_that_is_killed_is_replaced_and_nothing_is_lost(
    expected: dict[str, list], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    counts = collect(build_options(tmp_path, kill_once(tmp_path / "killed")), TWO_ENGINES)
    assert (tmp_path / "killed").exists()
    check_whole(tmp_path, expected, counts)
    problems = read_problems(tmp_path / "run")
    assert 1 <= len(problems) <= SETTINGS.concurrent_rollouts
    assert {problem["reason"] for problem in problems} == {f"{ENGINE_DIED}; finished in a later try"}
    again = [read_started(tmp_path)[problem["place"].removeprefix("rollout ")] for problem in problems]
    killed_at = (tmp_path / "killed").stat().st_mtime
    record_property("recovered_s", datetime.fromisoformat(min(again)).timestamp() - killed_at)
    record_property("repeated", len(problems))


def test_a_tool_that_ends_its_process_costs_a_call_where_that_is_no_engines(local_ray: None, tmp_path: Path) -> None:
    searches, answers = (get_protocol("tools").render_search(WORDS[0]), get_protocol("tools").render_answer("340 rpm"))
    names, ends = (render_call("name_process", {"ends": ends}) for ends in (False, True))

    def reply(request: Request) -> str:
        (tmp_path / f"engine-{os.getpid()}").touch()
        turn = sum(message["role"] == "assistant" for message in request.messages)
        if turn == 2:
            (tmp_path / "answered").touch()
        if turn == 1 and (tmp_path / "answered").exists() and not (tmp_path / "ended").exists():
            (tmp_path / "ended").touch()
            return ends
        return (searches, names, answers)[turn]

    called = {"tools": ("search", "name_process"), "tool_modules": ("tests.support.rollouts.ending_tool",)}
    agent = AgentConfig(protocol="tools", query_mode="rewrite", max_iterations=3, **called)
    options = build_options(tmp_path)
    options = dataclasses.replace(options, agent=agent, build_engine=lambda config, images, adapters: ScriptedEngine(reply, 0.05))
    settings = TWO_ENGINES.model_copy(update={"tool_hosts": (ToolHostConfig(tool="name_process"),)})
    counts = collect(options, settings)
    assert (counts["finished"], counts["unfinished"], read_problems(tmp_path / "run")) == (24, 0, [])
    rows = read_rows(tmp_path)
    failed = [call for row in rows if (call := row["turns"][1]["call"])["error"]]
    assert {call["error"] for call in failed} == {"name_process failed: its process has ended"}
    assert [call for call in failed if json.loads(call["arguments"])["ends"]]
    assert len(failed) < 4  # those that were under way with it at most
    told = [json.loads(row["messages"])[5]["content"] for row in rows if not row["turns"][1]["call"]["error"]]
    hosts = {int(text.split()[0]) for text in told}
    engines = {int(path.name.removeprefix("engine-")) for path in tmp_path.glob("engine-*")}
    assert (len(engines), len(hosts) >= 2, engines & hosts) == (2, True, set())


@pytest.mark.slow  # the one that is killed comes to the same
def test_an_engine_that_says_it_is_dead_is_replaced(expected: dict[str, list], tmp_path: Path) -> None:
    flag = tmp_path / "died"

    def fault(request: Request) -> None:
        if flag.exists() and flag.read_text() == str(os.getpid()):
            raise EngineDiedError("it stays dead")
        if "question 3?" in str(request.messages) and not flag.exists():
            flag.write_text(str(os.getpid()))
            raise EngineDiedError("core dumped")

    check_whole(tmp_path, expected, collect(build_options(tmp_path, fault), TWO_ENGINES))
    assert flag.exists()


@pytest.mark.slow
def test_a_question_that_kills_every_engine_is_set_aside(expected: dict[str, list], tmp_path: Path) -> None:
    def fault(request: Request) -> None:
        if "question 3?" in str(request.messages):
            os.kill(os.getpid(), signal.SIGKILL)

    counts = collect(build_options(tmp_path, fault), TWO_ENGINES)
    rows = read_rows(tmp_path)
    assert summarise(rows) == {name: turns for name, turns in expected.items() if not name.startswith("q3/")}
    assert (counts["finished"], counts["set_aside"], counts["unfinished"]) == (21, 3, 0)
    set_aside = [problem for problem in read_problems(tmp_path / "run") if "set aside" in problem["reason"]]
    assert [(problem["place"], problem["tries"]) for problem in set_aside] == [
        (f"rollout q3/default/{sample}", 3) for sample in range(3)
    ]


def test_a_run_that_goes_wrong_stops_and_goes_on_when_the_cause_is_mended(expected: dict[str, list], tmp_path: Path) -> None:
    def fault(request: Request) -> None:
        number = int(str(request.messages).partition("question ")[2][0])
        if number >= 4:
            raise RolloutError(f"cause {('A', 'A', 'B', 'C')[number - 4]}")

    with pytest.raises(TooManyFailuresError, match=r"more than max_failure_rate 20%") as caught:
        collect(build_options(tmp_path, fault))
    counted = re.findall(r"(\d+) x RolloutError: cause [ABC]", str(caught.value))
    assert len(counted) >= 2
    assert sum(map(int, counted)) >= 9
    kept = read_started(tmp_path)
    assert len(kept) >= 9
    assert any("cause A; set aside" in problem["reason"] for problem in read_problems(tmp_path / "run"))
    check_whole(tmp_path, expected, collect(build_options(tmp_path)))
    assert kept.items() <= read_started(tmp_path).items()


@pytest.mark.slow
def test_a_run_that_is_too_small_to_be_stopped_fails_at_its_end(local_ray: None, tmp_path: Path) -> None:
    def fault(request: Request) -> None:
        raise RolloutError(f"cause {'A' if 'question 0?' in str(request.messages) else 'B'}")

    plan, told = build_rollout_plan()[:8], r"(?s)8 of 8 rollouts failed.*5 x RolloutError: cause B\n.*3 x RolloutError: cause A\n"
    lenient = SETTINGS.model_copy(update={"max_failure_rate": 1})
    assert runner.run_plan(plan, build_options(tmp_path, fault), lenient, "collecting")["set_aside"] == 8
    with pytest.raises(TooManyFailuresError, match=told):  # of what it found on disk: there is nothing left to try
        runner.run_plan(plan, build_options(tmp_path), SETTINGS, "collecting")
    counts = runner.run_plan(plan, build_options(tmp_path), SETTINGS, "collecting")
    assert (counts["finished"], counts["set_aside"]) == (8, 0)


def test_a_full_disk_stops_the_run_which_goes_on_when_there_is_room(expected: dict[str, list], small_disk: Path) -> None:
    filler, flag = small_disk / "filler", small_disk.with_name("filled")

    def fill_when_some_are_written(request: Request) -> None:
        if flag.exists() or len(list(small_disk.glob("run/trajectories/*.parquet"))) < 2:
            return
        flag.touch()  # once: an engine of the run that is stopped may come here later
        with filler.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
            while stream.write(bytes(4096)):
                pass

    with pytest.raises(ArtifactError, match=r"No space left on device.*Free some space"):
        collect(build_options(small_disk, fill_when_some_are_written), TWO_ENGINES)
    kept = read_started(small_disk)
    assert 0 < len(kept) < len(expected)
    # No half file stays; the engine that did not fail may be in the middle of a write for a moment.
    wait_until(lambda: not list(small_disk.glob("run/trajectories/.*")))
    filler.unlink()
    check_whole(small_disk, expected, collect(build_options(small_disk)))
    assert kept.items() <= read_started(small_disk).items()


def test_an_engine_that_refuses_its_model_says_so(local_ray: None, tmp_path: Path) -> None:
    def refuse(config: EngineConfig, images: ImageSource | None, adapters: Sequence[str]) -> ScriptedEngine:
        raise ConfigError("engine.model 'x': has no chat template.")

    with pytest.raises(ConfigError, match=r"^engine\.model 'x': has no chat template\."):
        collect(dataclasses.replace(build_options(tmp_path), build_engine=refuse))


def test_an_engine_that_does_not_start_is_explained_by_its_log(local_ray: None, tmp_path: Path) -> None:
    def fail(config: EngineConfig, images: ImageSource | None, adapters: Sequence[str]) -> ScriptedEngine:
        print("ERROR [core.py] ValueError: no room for the cache", flush=True)
        raise RuntimeError("Engine core initialization failed. See root cause above.")

    with pytest.raises(EngineDiedError, match=r"the last error in their log: ValueError: no room for the cache"):
        collect(dataclasses.replace(build_options(tmp_path), build_engine=fail))


def test_a_driver_that_keeps_an_error_has_its_cpus_again(local_ray: None, tmp_path: Path) -> None:
    # In a driver of its own: pytest keeps what is logged, and with it Ray's error and what that holds.
    assert start_child("keep_an_error", tmp_path, ADDRESS=find_address()).wait(timeout=240) == 0


def test_a_killed_driver_leaves_what_is_finished_and_is_gone_on_with(expected: dict[str, list], tmp_path: Path) -> None:
    child = start_child("collect_in_child", tmp_path, ADDRESS=find_address())
    try:
        wait_until(lambda: len(list(tmp_path.glob("run/trajectories/*.parquet"))) >= 3)
    finally:
        os.kill(child.pid, signal.SIGKILL)  # the driver alone: its engines may write on for a moment
        child.wait()
    kept = read_started(tmp_path)
    assert 0 < len(kept) < len(expected)
    check_whole(tmp_path, expected, collect(build_options(tmp_path)))
    assert kept.items() <= read_started(tmp_path).items()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_driver_that_is_killed_twenty_times_loses_and_repeats_nothing(expected: dict[str, list], tmp_path: Path) -> None:
    from repeated_kills import kill_and_resume

    (tmp_path / "collected").mkdir()

    def check(folder: Path) -> None:
        check_whole(folder, expected, json.loads((folder / "counts.json").read_text()))

    def reset(folder: Path) -> None:
        shutil.rmtree(folder / "run")

    kill_and_resume(tmp_path / "collected", lambda folder: start_child("collect_in_child", folder), check, 20, reset)


def test_a_node_that_is_lost_takes_nothing_with_it(expected: dict[str, list], tmp_path: Path) -> None:
    child = start_child("lose_a_node", tmp_path)
    assert child.wait(timeout=150) == 0
    counts = json.loads((tmp_path / "counts.json").read_text())
    check_whole(tmp_path, expected, counts)
    problems = read_problems(tmp_path / "run")
    assert {problem["reason"] for problem in problems} == {f"{ENGINE_DIED}; finished in a later try"}


@pytest.mark.slow
def test_a_node_that_is_cut_off_and_writes_on_leaves_each_rollout_once(expected: dict[str, list], tmp_path: Path) -> None:
    # Ray asks each second, and gives a node up after the third answer that has not come within 3 s.
    asked = {"period_ms": "1000", "timeout_ms": "3000", "failure_threshold": "3", "initial_delay_ms": "1000"}
    child = start_child("cut_off_a_node", tmp_path, **{f"RAY_health_check_{name}": value for name, value in asked.items()})
    assert child.wait(timeout=300) == 0
    cut = json.loads((tmp_path / "cut.json").read_text())
    assert cut["at"] < cut["wrote_last_at"]
    check_whole(tmp_path, expected, json.loads((tmp_path / "counts.json").read_text()))


def find_address() -> str:
    """The Ray that this process is connected to."""
    return ray.get_runtime_context().gcs_address


def start_child(name: str, folder: Path, **environment: str) -> subprocess.Popen:
    """Run one of the functions below in a driver of its own, all of whose Rays ask for the token."""
    ensure_token(may_create=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "RAY_AUTH_MODE": "token", **environment}
    return subprocess.Popen([sys.executable, __file__, name, str(folder)], start_new_session=True, env=environment)


def collect_in_child(folder: Path) -> None:
    """A collection that is slow enough to be killed."""
    with connect(ClusterConfig(address=os.environ.get("ADDRESS", ""), num_cpus=2)):
        (folder / "begun").touch()
        counts = collect(build_options(folder, delay_s=0.5), TWO_ENGINES)
    (folder / "counts.json").write_text(json.dumps(counts))


def keep_an_error(folder: Path) -> None:
    """Collect until an engine cannot write any more, and wait for the CPUs of all engines."""
    running_dir = str(folder / "run" / RUNNING_DIR_NAME)

    def fault(request: Request) -> None:
        if "question 3?" in str(request.messages):
            shutil.rmtree(running_dir, ignore_errors=True)
            Path(running_dir).touch()

    with connect(ClusterConfig(address=os.environ["ADDRESS"])):
        num_free = ray.available_resources()["CPU"]
        with pytest.raises(DragRayError) as kept:
            collect(build_options(folder, fault), TWO_ENGINES)
        assert kept.value.__context__ is None  # it would be Ray's
        wait_until(lambda: ray.available_resources().get("CPU", 0) >= num_free)


def collect_on_two_nodes(folder: Path, delay_s: float, disturb: Callable[[Cluster, Any], object]) -> tuple[Cluster, Any]:
    """Collect, and disturb one of the nodes when some rollouts are finished; the cluster and that node."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    node, _ = (cluster.add_node(num_cpus=2) for _ in range(2))
    ray.init(address=cluster.address)

    def note_node(request: Request) -> None:
        (folder / f"node-{ray.get_runtime_context().get_node_id()}").write_text(str(time.time()))

    def wait_and_disturb() -> None:
        wait_until(lambda: len(list(folder.glob("run/trajectories/*.parquet"))) >= 3 and len(list(folder.glob("node-*"))) == 2)
        disturb(cluster, node)

    disturbing = threading.Thread(target=wait_and_disturb)
    disturbing.start()
    counts = collect(build_options(folder, note_node, delay_s), TWO_ENGINES)
    disturbing.join()
    (folder / "counts.json").write_text(json.dumps(counts))
    return cluster, node


def lose_a_node(folder: Path) -> None:
    """Collect on two nodes of which one is removed."""
    cluster, node = collect_on_two_nodes(folder, 0.7, lambda cluster, node: cluster.remove_node(node, allow_graceful=False))
    assert not node.any_processes_alive()
    ray.shutdown()
    cluster.shutdown()


def cut_off_a_node(folder: Path) -> None:
    """Collect on two nodes, of which one answers Ray no more, while its engine writes on."""
    cut = dict[str, float | str]()

    def cut_off(cluster: Cluster, node: Any) -> None:
        cut["at"] = time.time()
        os.kill(node.all_processes["raylet"][0].process.pid, signal.SIGSTOP)
        wait_until(lambda: not all(one["Alive"] for one in ray.nodes()))
        cut["noticed_at"] = time.time()
        cut["node"] = next(one["NodeID"] for one in ray.nodes() if not one["Alive"])

    cluster, node = collect_on_two_nodes(folder, 3, cut_off)
    (folder / "cut.json").write_text(json.dumps(cut | {"wrote_last_at": float((folder / f"node-{cut['node']}").read_text())}))
    ray.shutdown()
    os.kill(node.all_processes["raylet"][0].process.pid, signal.SIGCONT)
    cluster.shutdown()


if __name__ == "__main__":
    children = (collect_in_child, keep_an_error, lose_a_node, cut_off_a_node)
    next(child for child in children if child.__name__ == sys.argv[1])(Path(sys.argv[2]))
