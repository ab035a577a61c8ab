"""One Ctrl-C ends every stage within seconds, with one sentence, and leaves no process; started again the stage goes on."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from chat_server import Answer, ChatServer, serve_chat
from ports import find_port
from process_environments import be_in_foreground
from small_index import finish_index
from waiting import wait_until

from drag_ray.rollout import journal
from drag_ray.types import Evidence, Page, Question

ROOT = Path(__file__).parents[3]
WORDS = ("rotor", "spar", "valve", "pump", "flap", "wheel")
ENDS_WITHIN_S = 20
"""what a stage may take on a machine that has other work; without a signal of ours it would go on for minutes"""
NUM_ANSWERED = 3
SAID = "stopped. Finished work is kept; the same command continues."


def start(folder: Path, job: str, *options: str) -> subprocess.Popen[bytes]:
    """A job as a terminal starts it: its processes are a group, to which Ctrl-C goes."""
    command = [sys.executable, f"jobs/{job}.py", "--run-dir", str(folder / "run"), *options]
    with (folder / "out.log").open("wb") as out, (folder / "err.log").open("wb") as err:
        return subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err, start_new_session=True, preexec_fn=be_in_foreground)


def interrupt(folder: Path, job: str, process: subprocess.Popen[bytes], send: Callable[[int, int], None]) -> None:
    started = psutil.Process(process.pid).children(recursive=True)
    said_before = (folder / "err.log").read_text()
    assert process.poll() is None, (folder / "err.log").read_text()[-3000:]
    send(process.pid, signal.SIGINT)
    begun = time.monotonic()
    assert process.wait(timeout=60) == 130
    assert time.monotonic() - begun < ENDS_WITHIN_S
    *others, last = (folder / "err.log").read_text().removeprefix(said_before).splitlines()
    assert last == f"drag-ray {job}: {SAID}"
    assert not [line for line in others if re.search(r"Traceback|died|killed|retr|restart", line)]
    assert "Traceback" not in (folder / "out.log").read_text()
    wait_until(lambda: not [child for child in started if child.is_running() and child.status() != psutil.STATUS_ZOMBIE], 10)


def wait_for(line: str, process: subprocess.Popen[bytes], folder: Path) -> None:
    """Return when a job has said a line, or ended."""
    wait_until(lambda: process.poll() is not None or re.search(line, (folder / "out.log").read_text(), re.M), 900)


@pytest.fixture
def served() -> Iterator[ChatServer]:
    """An endpoint that answers a few requests, and then keeps all waiting."""
    answered_s = iter([0.0] * NUM_ANSWERED)
    with serve_chat(lambda body, number: Answer("<search>rotor", seconds=next(answered_s, 600))) as served:
        yield served


@pytest.mark.parametrize(
    ("stage", "send"),
    [
        pytest.param("collect", os.killpg, id="collect-as from a terminal"),
        pytest.param("collect", os.kill, id="collect-to the job alone", marks=pytest.mark.slow),
        pytest.param("evaluate", os.killpg, id="evaluate-as from a terminal", marks=pytest.mark.slow),
        pytest.param("evaluate", os.kill, id="evaluate-to the job alone", marks=pytest.mark.slow),
    ],
)
def test_one_signal_ends_a_stage_that_waits_for_its_engine(
    stage: str, send: Callable[[int, int], None], tmp_path: Path, served: ChatServer
) -> None:
    pages = [Page("a.pdf", number, len(WORDS), f"The {word} of a plane.") for number, word in enumerate(WORDS, start=1)]
    questions = [
        Question(f"{split}{number}", f"What is part {number}?", (Evidence("a.pdf", number),), split=split)
        for split in ("train", "test")
        for number in range(1, 7)
    ]
    finish_index(tmp_path / "run", pages, questions)
    engine = ("--engine.backend", "openai", "--engine.model", "teacher", "--engine.endpoint.address", served.address)
    small = ("--agent.max-iterations", "1", "--cluster.num-cpus", "2", "--rollout.flush-s", "0", "--rollout.chunk-rollouts", "1")
    process = start(tmp_path, stage, *engine, *small)
    wait_until(lambda: len(served.asked) > NUM_ANSWERED or process.poll() is not None)
    rollouts_dir = tmp_path / "run" / stage / ("rollouts/engine1" if stage == "evaluate" else "")
    wait_until(lambda: len(journal.list_files(rollouts_dir, "trajectories")) > 0)
    interrupt(tmp_path, stage, process, send)
    assert journal.read_finished_ids(rollouts_dir)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_one_signal_ends_each_stage_of_a_pipeline_with_a_real_engine_and_the_next_start_goes_on(tmp_path: Path) -> None:
    options = ("--config", "jobs/configs/small.toml")
    for stage in ("index", "collect", "process", "format", "finetune", "evaluate"):
        process, seed = start(tmp_path, "pipeline", *options), random.randrange(10**6)
        wait_for(rf"^{stage}: (starting|going on)", process, tmp_path)
        print(f"{stage}: seed {seed}")
        time.sleep(random.Random(seed).uniform(0, 1 if stage in ("process", "format") else 20))
        interrupt(tmp_path, "pipeline", process, os.killpg)
    process = start(tmp_path, "pipeline", *options)
    assert process.wait(timeout=1800) == 0, (tmp_path / "err.log").read_text()[-3000:]
    assert "index: unchanged, skipped" in (tmp_path / "out.log").read_text()

    process = start(tmp_path, "serve", *options, f"--serve.port={find_port()}")
    wait_for(r"^starting .* engine", process, tmp_path)
    time.sleep(3)
    interrupt(tmp_path, "serve", process, os.killpg)
