"""Runs pipelines on the GPUs of one host, each on a GPU and a share of the cores, and notes how busy its GPU was.

python benchmarks/run_effect.py FOLDER "medquad=benchmarks/effect/medquad.toml --evaluate.limit 1000" ... [--options="..."]

An entry is a name, what `jobs/pipeline.py --config` takes, and options of its own; `--options` are those of all. Each runs in
FOLDER/NAME and prints to FOLDER/NAME.log, each line with its second; one that waits takes the first GPU that is free.
FOLDER/NAME.json holds the seconds of each stage, the share of them in which the GPU worked (of nvidia-smi, each second), and both
from the first finished rollouts to the report. `bench_effect.py --evaluation` takes the evaluations from there. Without a GPU the
pipelines run one after the other on all cores. Several such commands on one host, each with its `--gpus`, share the cores by
`taskset`. The adapters that effect/*.toml evaluate are in runs/effect, so that FOLDER is theirs.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from record import make_folder
from watch import Watch

from drag_ray.stage_runs import provenance
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import MANIFEST_NAME, read_manifest

ROOT = Path(__file__).parents[1]
_SHARES = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]


class GpuWatch(Watch):
    """Load of each GPU, each second."""

    def __init__(self) -> None:
        self.num_gpus = len(_read_shares()) if shutil.which("nvidia-smi") else 0
        self._seconds: list[tuple[float, list[float]]] = []

    def look(self) -> None:
        if self.num_gpus:
            self._seconds.append((time.time(), _read_shares()))

    def compute_share(self, gpu: int | None, start: float, end: float) -> float | None:
        """The mean of a GPU from one time to another; None where nothing was seen."""
        found = [shares[gpu] for at, shares in self._seconds if start <= at <= end] if gpu is not None else []
        return round(sum(found) / len(found), 3) if found else None


def _read_shares() -> list[float]:
    printed = subprocess.run(_SHARES, check=True, capture_output=True, text=True).stdout
    return [float(line) / 100 for line in printed.splitlines()]


class FirstRollouts(Watch):
    """The moment at which the first rollouts of a run were kept; None before."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self.at: float | None = None

    def look(self) -> None:
        if self.at is None and next(self._run_dir.glob("**/collect/trajectories/*.parquet"), None):
            self.at = time.time()


@dataclass(frozen=True)
class Entry:
    """A pipeline: the name of its folder, and what `jobs/pipeline.py --config` takes, with options."""

    name: str
    arguments: tuple[str, ...]


def read_entry(text: str) -> Entry:
    """Of the command line."""
    name, _, given = text.partition("=")
    arguments = tuple(shlex.split(given))
    if not arguments or name != Path(name).name:
        raise argparse.ArgumentTypeError(f"{text!r}: expected the name of a folder and a configuration, NAME=CONFIG")
    return Entry(name, arguments)


@dataclass(frozen=True)
class Lane:
    """The resources that one pipeline has at a time: a GPU, if there is one, and cores."""

    gpu: int | None
    cores: tuple[int, ...]


def plan_lanes(num_gpus: int, wanted: Sequence[int]) -> SimpleQueue[Lane]:
    """A lane for each wanted GPU, with its share of the cores of this process; one with all of them where there is no GPU."""
    cores, lanes = sorted(os.sched_getaffinity(0)), SimpleQueue[Lane]()
    if not num_gpus:
        lanes.put(Lane(None, tuple(cores)))
        return lanes
    numbers = wanted or range(num_gpus)
    each = len(cores) // len(numbers)
    for place, number in enumerate(numbers):
        lanes.put(Lane(number, tuple(cores[place * each : (place + 1) * each])))
    return lanes


def run(entry: Entry, shared: list[str], folder: Path, lanes: SimpleQueue[Lane], gpus: GpuWatch) -> int:
    """Run a pipeline on the next free lane, and write what became of it; returns its exit code."""
    config, *own = entry.arguments
    run_dir, lane = folder / entry.name, lanes.get()
    command = [sys.executable, str(ROOT / "jobs" / "pipeline.py"), "--config", config, "--run-dir", str(run_dir)]
    command += ["--cluster.num-cpus", str(len(lane.cores)), *shared, *own]
    environment = os.environ | ({} if lane.gpu is None else {"CUDA_VISIBLE_DEVICES": str(lane.gpu)})
    started = time.time()
    try:
        with (folder / f"{entry.name}.log").open("w", encoding="utf-8") as log, FirstRollouts(run_dir) as first:
            said: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
            with subprocess.Popen(command, cwd=ROOT, env=environment, **said) as process:
                os.sched_setaffinity(process.pid, lane.cores)
                for line in process.stdout or ():
                    log.write(f"{time.time() - started:7.1f} {line}")
                    log.flush()
            code = process.returncode
        record = {"command": shlex.join(command[1:]), "commit": provenance.read_commit(), "machine": provenance.read_machine()}
        artifacts.write_json(
            folder / f"{entry.name}.json", {**record, "exit_code": code, **summarise(run_dir, started, first.at, lane.gpu, gpus)}
        )
    finally:
        lanes.put(lane)
    print(f"{entry.name}: exit code {code} after {time.time() - started:.0f} s on GPU {lane.gpu}", flush=True)
    return code


def summarise(run_dir: Path, started: float, first_rollouts: float | None, gpu: int | None, gpus: GpuWatch) -> dict[str, Any]:
    """The seconds of each finished stage, how busy the GPU was then, and what the stage counted."""
    finished = [read_manifest(path.parent) for path in sorted(run_dir.glob(f"**/{MANIFEST_NAME}"))]
    manifests = {manifest.stage: manifest for manifest in finished if manifest}
    ends = {stage: datetime.fromisoformat(manifest.finished_at).timestamp() for stage, manifest in manifests.items()}
    order = sorted(manifests, key=lambda stage: ends[stage])
    found: dict[str, Any] = {
        "stages_s": {stage: round(manifests[stage].duration_s) for stage in order},
        "gpu_utilization_by_stage": {
            stage: gpus.compute_share(gpu, ends[stage] - manifests[stage].duration_s, ends[stage]) for stage in order
        },
        "counts": {stage: manifests[stage].counts for stage in order},
    }
    if first_rollouts and "evaluate" in ends:
        found["first_rollouts_after_s"] = round(first_rollouts - started)
        found["from_first_rollout_to_report_s"] = round(ends["evaluate"] - first_rollouts)
        found["gpu_utilization_from_first_rollout_to_report"] = gpus.compute_share(gpu, first_rollouts, ends["evaluate"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=make_folder, help="where the runs are")
    parser.add_argument(
        "entries", nargs="+", type=read_entry, metavar="NAME=CONFIG", help="pipelines, each with options of its own if it has any"
    )
    parser.add_argument("--options", default="", help="options of jobs/pipeline.py that all have")
    parser.add_argument("--gpus", nargs="+", type=int, default=[], help="numbers of those that may be used; all by default")
    given = parser.parse_args()
    folder, shared = given.folder.resolve(), shlex.split(given.options)
    with GpuWatch() as gpus:
        if missing := sorted(set(given.gpus).difference(range(gpus.num_gpus))):
            parser.error(f"--gpus {missing[0]}: this machine has {gpus.num_gpus}, numbered from 0")
        lanes = plan_lanes(gpus.num_gpus, given.gpus)
        with ThreadPoolExecutor(lanes.qsize()) as pool:
            codes = list(pool.map(lambda entry: run(entry, shared, folder, lanes, gpus), given.entries))
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
