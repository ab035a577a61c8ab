"""Damaged files for every reader, in a child process with limits: each is read, set aside or refused, and nothing else.

python benchmarks/fuzz_readers.py [--inputs 100000] [--seed 0] [--only .pdf .docx] [--keep FOLDER]

The files are small sound ones with random changes. A reader may raise an error of this project alone. The readers of documents
work in limited processes wherever they are used, so that an input that ends the process, or takes it too long, is contained
there: these are counted, and no failures. For all other readers they are. Failures are kept in FOLDER and counted by kind, and
the first of each is printed. The exit status is 1 if there was any. The counts are kept in `results/fuzz_readers.json`.
"""

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz_seeds import build_seeds, damage
from record import write_result

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.config import load
from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.problems import Problem
from drag_ray.corpus.questions import read_questions
from drag_ray.corpus.readers.document_process import DocumentProcess
from drag_ray.corpus.readers.documents import Span, count_pages, read_document
from drag_ray.corpus.readers.page_reader import PageReader
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.models.adapter import check_adapter
from drag_ray.errors import DragRayError
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.process.interchange_format import load_interchange
from drag_ray.types import Trajectory

MEMORY_GIB = 4.0
CPU_S = 20.0
_REPORT_S = 30


@dataclass
class Outcome:
    """Counts of the inputs by their outcome."""

    inputs: Counter[str] = field(default_factory=Counter[str])
    refused: int = 0
    contained: Counter[str] = field(default_factory=Counter[str])
    failures: Counter[str] = field(default_factory=Counter[str])
    slowest: tuple[float, str] = (0.0, "")

    def to_dict(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs.total(),
            "inputs_by_kind": dict(self.inputs),
            "refused": self.refused,
            "contained": dict(self.contained),
            "failures": dict(self.failures),
            "slowest_s": round(self.slowest[0], 2),
            "slowest_kind": self.slowest[1],
        }


def read(name: str, path: Path) -> bool:
    """Read a file as what its name says; True if there was anything in it. Runs in the child process."""
    if name.startswith("."):
        config = CorpusConfig(ocr="off", page_images=True, page_image_dpi=36, document_pages=100)
        count_pages(path)
        pages, problems = read_document(Span(path), path.parent, PageReader(config, ImageStore(path.parent / "images")))
        schemas.to_table(pages, schemas.PAGES)
        return bool(pages) and _are_writable(problems)
    if name.startswith("questions"):
        questions, problems = read_questions(path)
        schemas.to_table(questions, schemas.QUESTIONS)
        return bool(questions) and _are_writable(problems)
    if name.startswith("trajectories"):
        read = load_interchange(path.stem).read
        assert read, "the formats whose files are damaged here are read"
        found = list(read(path, AgentConfig(query_mode="rewrite")))
        trajectories = [item for item in found if isinstance(item, Trajectory)]
        schemas.to_table(trajectories, schemas.TRAJECTORIES)
        return bool(trajectories) and _are_writable([item for item in found if isinstance(item, Problem)])
    if name.startswith("config"):
        load(RunConfig, ["--config", str(path)], ["run_dir"])
    else:
        adapter_dir = path.parents[1] / ("adapter" if name.startswith("model") else path.parent.name)
        check_adapter(EngineConfig(model=str(path.parents[1] / "model"), adapter=str(adapter_dir)))
    return True


def _are_writable(problems: list[Problem]) -> bool:
    return not problems or bool(json.dumps([(problem.place, problem.reason) for problem in problems]).encode())


def fuzz(num_inputs: int, seed: int, only: list[str], keep: Path | None) -> Outcome:
    """Read so many damaged files, the kinds in turn."""
    rng = random.Random(seed)
    seeds = build_seeds()
    names = [name for name in seeds if not only or name in only]
    outcome = Outcome()
    reported = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, closing(DocumentProcess(MEMORY_GIB, CPU_S)) as process:
        for name, sound in seeds.items():
            _write(Path(folder), name, sound[0])
        for number in range(num_inputs):
            name = names[number % len(names)]
            path = _write(Path(folder), name, damage(name, seeds[name], rng))
            failure = _read_one(process, name, path, outcome)
            if failure:
                if not outcome.failures[failure]:
                    print(f"{failure}: input {number}", flush=True)
                outcome.failures[failure] += 1
                if keep:
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{number}-{name.replace('/', '-')}").write_bytes(path.read_bytes())
            if "/" in name:  # these files are read together
                _write(Path(folder), name, seeds[name][0])
            if time.monotonic() - reported > _REPORT_S:
                reported = time.monotonic()
                print(json.dumps(outcome.to_dict()), flush=True)
    return outcome


def _write(folder: Path, name: str, data: bytes) -> Path:
    path = folder / (f"document{name}" if name.startswith(".") else name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _read_one(process: DocumentProcess, name: str, path: Path, outcome: Outcome) -> str:
    """The fault of a reading, empty if there was none."""
    started = time.perf_counter()
    failure = ""
    try:
        outcome.refused += not process.run(read, name, path)
    except DragRayError as error:
        if process._connection is not None:
            outcome.refused += 1
        elif name.startswith("."):
            outcome.contained[f"{name}: {str(error)[:60]}"] += 1
        else:
            failure = f"{name}: {str(error)[:60]}"
    except Exception as error:
        failure = f"{name}: {type(error).__name__}: {str(error)[:100]}"
    outcome.inputs[name] += 1
    outcome.slowest = max(outcome.slowest, (time.perf_counter() - started, name))
    return failure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000, help="how many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], help="kinds, such as .pdf or questions.jsonl")
    parser.add_argument("--keep", type=Path, help="where inputs that failed are written")
    options = parser.parse_args()
    started = time.monotonic()
    outcome = fuzz(options.inputs, options.seed, options.only, options.keep)
    result = {**outcome.to_dict(), "seed": options.seed, "seconds": round(time.monotonic() - started, 1)}
    print(json.dumps(result))
    write_result("fuzz_readers", result)
    raise SystemExit(bool(outcome.failures))


if __name__ == "__main__":
    main()
