"""Process and format at scale: wall time and memory for growing sets made from real trajectories, beside plain Python.

python benchmarks/bench_process_format.py [--trajectories 100000 1000000] [--source runs/demo/collect/trajectories]

The sets are copies of the source's questions, each with ids, groups, texts and evidence of its own.  The stages run as a job
runs them, on two CPUs of a local Ray; memory (proportional set size) and CPU time are those of this process and all of Ray's.
Plain Python does the same steps with a set small enough for it; its rows must be as many as the stages write for that set.
"""

import argparse
import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import plain_process_format
import polars as pl
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from record import make_folder, write_result
from watch import Watch

from drag_ray import schemas
from drag_ray.cluster.connection import ClusterConfig, connect
from drag_ray.format.rows import FORMATS
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_code
from drag_ray.pipeline.stages import STAGES
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity

_COPIES_PER_FILE = 5
_LARGEST_FLOOR = 100_000
"""trajectories whose rows fit into memory all at once"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, nargs="+", default=[100_000, 1_000_000], help="sizes of the sets")
    parser.add_argument("--plain-trajectories", type=int, default=10_000, help="size of the set that plain Python works on")
    parser.add_argument("--source", type=Path, default=Path("runs/demo/collect/trajectories"), help="real trajectories")
    parser.add_argument("--scratch-dir", type=make_folder, default=None, help="where the sets are made; about 1 GB a 100,000")
    parser.add_argument("--cpus", type=int, default=2, help="CPUs of the local Ray")
    options = parser.parse_args()
    real = read_source(options.source)
    with tempfile.TemporaryDirectory(dir=options.scratch_dir, prefix="bench-process-format-") as scratch:
        plain = measure_plain(real, Path(scratch) / "plain", options.plain_trajectories)
        with connect(ClusterConfig(num_cpus=options.cpus)):
            sizes = [measure_stages(real, Path(scratch) / str(size), size) for size in options.trajectories]
    for result in sizes:
        result["times_as_fast_as_plain"] = round(plain["us_per_trajectory"] / result["us_per_trajectory"], 1)
        result["times_less_cpu_than_plain"] = round(plain["cpu_us_per_trajectory"] / result["cpu_us_per_trajectory"], 1)
        print(result)
    write_result("process_format", {"cpus": options.cpus, "real_trajectories": real.height, "plain": plain, "stages": sizes})


def read_source(folder: Path) -> pl.DataFrame:
    paths = sorted(folder.glob("*.parquet"))
    if not paths:
        raise SystemExit(f"{folder}: no trajectories. Run `make demo`, or name another folder with --source.")
    frame = pl.from_arrow(pa.concat_tables([schemas.read_table(path, schemas.TRAJECTORIES) for path in paths]))
    assert isinstance(frame, pl.DataFrame)
    # Plain Python knows no more than the policy's own trajectories, whose questions were not searched.
    asked = pl.col("question_search").struct.with_fields(hits=pl.field("hits").list.head(0), rank=pl.lit(None, dtype=pl.Int32))
    return frame.filter(pl.col("provenance").struct.field("baseline") == "").with_columns(question_search=asked)


def write_copies(real: pl.DataFrame, folder: Path, num_trajectories: int) -> int:
    """Write about `num_trajectories` copies in files of a few copies of the whole source each; returns how many there are."""
    folder.mkdir(parents=True)
    num_copies = max(1, round(num_trajectories / real.height))
    for start in range(0, num_copies, _COPIES_PER_FILE):
        copies = pl.concat([copy_trajectories(real, copy) for copy in range(start, min(start + _COPIES_PER_FILE, num_copies))])
        table = copies.to_arrow().cast(schemas.TRAJECTORIES)
        pq.write_table(table, folder / f"part-{start:06d}.parquet", compression="zstd")
    return num_copies * real.height


def copy_trajectories(real: pl.DataFrame, copy: int) -> pl.DataFrame:
    """The trajectories of other questions about other documents, asked in other words."""
    page = pl.element().struct
    return real.with_columns(
        *(pl.format("{}/{}", name, pl.lit(copy)).alias(name) for name in ("id", "question_id", "group")),
        question=pl.col("question") + f" ({copy})",
        messages=pl.col("messages").str.replace_all("Question: ", f"Question {copy}: ", literal=True),
        evidence=pl.col("evidence").list.eval(
            pl.struct(file=page.field("file") + f"/{copy}", page_number=page.field("page_number"))
        ),
    )


def measure_plain(real: pl.DataFrame, folder: Path, size: int) -> dict[str, Any]:
    num_trajectories = write_copies(real, folder / "collect" / "trajectories", size)
    started, cpu_started = time.perf_counter(), time.process_time()
    rows = plain_process_format.run(folder / "collect" / "trajectories", folder / "rows")
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    result = {"trajectories": num_trajectories, **_rate(seconds, cpu_seconds, num_trajectories), "rows": rows}
    print(result)
    return result


def measure_stages(real: pl.DataFrame, run_dir: Path, size: int) -> dict[str, Any]:
    num_trajectories = write_copies(real, run_dir / "collect" / "trajectories", size)
    config = RunConfig(run_dir=run_dir)
    seconds: dict[str, float] = {}
    cpu_started = read_cpu_seconds()
    counts: dict[str, Any] = {}
    with Memory() as memory:
        for name in ("process", "format"):
            started = time.perf_counter()
            with StageFolder((config.run_dir / name), Identity(name, {}, {})) as folder:
                counts |= run_code(STAGES[name], config, folder)
            seconds[f"{name}_seconds"] = round(time.perf_counter() - started, 2)
    cpu_seconds = read_cpu_seconds() - cpu_started
    rows = {name: counts[f"{name}_train"] + counts[f"{name}_validation"] for name in FORMATS}
    written_bytes = sum(path.stat().st_size for path in (config.run_dir / "format").rglob("*") if path.is_file())
    floor = measure_floor(run_dir, num_trajectories) if size <= _LARGEST_FLOOR else {}
    shutil.rmtree(run_dir)
    return {
        "trajectories": num_trajectories,
        "questions": counts["questions"],
        **seconds,
        **_rate(sum(seconds.values()), cpu_seconds, num_trajectories),
        "peak_memory_gib": round(memory.peak_bytes / 2**30, 2),
        "written_gib": round(written_bytes / 2**30, 2),
        **floor,
        "rows": rows,
    }


def measure_floor(run_dir: Path, num_trajectories: int) -> dict[str, Any]:
    """CPU time of Polars to read the trajectories and to write the finished rows, without any step in between."""
    folder = run_dir / "floor"
    folder.mkdir()
    rows = [pl.read_ndjson(path) for path in (run_dir / "format").rglob("*.jsonl") if path.stat().st_size]
    tables = [pl.read_parquet(path) for path in (run_dir / "format").rglob("*.parquet")]
    started = time.process_time()
    pl.read_parquet(run_dir / "collect" / "trajectories" / "*.parquet")
    for number, frame in enumerate(rows):
        frame.write_ndjson(folder / f"{number}.jsonl")
    for number, frame in enumerate(tables):
        frame.write_parquet(folder / f"{number}.parquet", compression="zstd")
    return {"reading_and_writing_cpu_us_per_trajectory": round(1e6 * (time.process_time() - started) / num_trajectories, 1)}


class Memory(Watch):
    """The highest proportional set size of this process and all that it started, in bytes."""

    interval_s = 2.0  # adding up the pages of all processes takes a tenth of a second; more often would slow them down
    peak_bytes = 0

    def look(self) -> None:
        total = 0
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += process.memory_full_info().pss
        self.peak_bytes = max(self.peak_bytes, total)


def read_cpu_seconds() -> float:
    """CPU time of this process and all that it started and that runs still, which Ray's workers do."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def _rate(seconds: float, cpu_seconds: float, num_trajectories: int) -> dict[str, float]:
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "us_per_trajectory": round(1e6 * seconds / num_trajectories, 1),
        "cpu_us_per_trajectory": round(1e6 * cpu_seconds / num_trajectories, 1),
    }


if __name__ == "__main__":
    main()
