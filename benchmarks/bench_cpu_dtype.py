"""Speed of the demo's generation and training in bfloat16 and float32, by the vector instructions that processors have.

python benchmarks/bench_cpu_dtype.py [--questions 16] [--steps 2] [--repeats 2] [--limit-s 300]

A processor with fewer instructions is imitated on one with AVX-512 BF16: oneDNN, PyTorch and MKL are told by their environment
variables to use no others, and vLLM loads the library that it would load there. Each measurement is a process of its own, on one
thread, with the work and the options of `jobs/configs/demo.toml`: generation draws five replies to each question, training takes
steps of its batch on rows like its rows. Time is the processor's, of which other programs on the machine take little.
"""

import argparse
import contextlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from record import write_result

from drag_ray.agent.prompts import Prompts
from drag_ray.cluster.metrics import StageRecorder
from drag_ray.config import build
from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.pipeline.run_config import RunConfig

INSTRUCTIONS: dict[str, dict[str, str]] = {
    "avx512_bf16": {},
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"},
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
}
DTYPES = ("bfloat16", "float32")
_PROBES = {
    "avx512_bf16": (),
    "avx512": ("_is_avx512_bf16_supported",),
    "avx2": ("_is_avx512_bf16_supported", "_is_avx512_supported"),
}
"""What vLLM asks PyTorch before it loads its library, to be answered with no."""
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
_REPLY_TOKENS = 10
_SAMPLES = 5


def read_demo(dtype: str) -> RunConfig:
    """The demo's options with one number format."""
    path = Path(__file__).parents[1] / "jobs" / "configs" / "demo.toml"
    given = {"engine": {"dtype": dtype, "cpu_threads": 1}, "finetune": {"dtype": dtype, "epochs": 1}}
    return build(RunConfig, given, path)


def write_conversations(config: RunConfig, number: int) -> list[list[dict[str, Any]]]:
    """The demo's opening messages, with questions of the length of its questions."""
    prompts = Prompts(config.agent)
    asked = (f"To change the number {place} of the settings that a group shares (Service Catalog)" for place in range(number))
    return [prompts.opening(question) for question in asked]


def generate(config: RunConfig, options: argparse.Namespace) -> dict[str, float]:
    """Draw replies of one length, all submitted at once, by the options of an engine of this project."""
    from vllm import LLM, EngineArgs, SamplingParams

    from drag_ray.engine.vllm import build_engine_args

    arguments = vars(build_engine_args(config.engine))
    llm = LLM(**{name: arguments[name] for name in EngineArgs.__dataclass_fields__})
    conversations: Any = write_conversations(config, options.questions)
    params = [
        SamplingParams(max_tokens=_REPLY_TOKENS, ignore_eos=True, seed=seed) for seed in range(options.questions * _SAMPLES)
    ]
    repeated = [conversation for conversation in conversations for _ in range(_SAMPLES)]
    llm.chat(repeated[:_SAMPLES], params[:_SAMPLES], use_tqdm=False)
    began = time.process_time()
    llm.chat(repeated, params, use_tqdm=False)
    return {"tokens": len(repeated) * _REPLY_TOKENS, "cpu_s": time.process_time() - began}


class Clock(StageRecorder):
    """Notes the tokens and the processor's time of each point of a learning curve."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []

    def set_point(self, point: Mapping[str, float]) -> None:
        self.points.append((point["tokens"], time.process_time()))


def train(config: RunConfig, options: argparse.Namespace) -> dict[str, float]:
    """Train on rows of the demo's form; the first step is not counted."""
    from drag_ray.finetune.config import TrainJob
    from drag_ray.finetune.rows.training_rows import tokenize_training_rows
    from drag_ray.finetune.trainer import train as run_training

    reply = [{"role": "assistant", "content": "<search>update group settings</search>"}]
    conversations = write_conversations(config, config.finetune.batch_size * (options.steps + 1))
    with tempfile.TemporaryDirectory() as folder:
        train_path, validation_path = Path(folder) / "train.jsonl", Path(folder) / "validation.jsonl"
        train_path.write_text("".join(json.dumps({"prompt": messages, "completion": reply}) + "\n" for messages in conversations))
        validation_path.write_text("")
        job = TrainJob(
            config.finetune,
            resolve_model(config.engine.model),
            train_path,
            validation_path,
            image_dirs=(),
            use_gpu=False,
            num_workers=1,
            num_threads=1,
        )
        clock = Clock()
        run_training(job, tokenize_training_rows(job), lambda _, checkpoint: shutil.rmtree(checkpoint), None, clock)
    (num_tokens, began), *_, (all_tokens, ended) = clock.points
    return {"tokens": all_tokens - num_tokens, "cpu_s": ended - began}


WORK = {"generate": generate, "train": train}


def measure_here(options: argparse.Namespace) -> None:
    """Do one measurement in this process, and print it as the last line."""
    instructions, dtype, work = options.only
    with contextlib.ExitStack() as patches:
        for probe in _PROBES[instructions]:
            patches.enter_context(mock.patch(f"torch.cpu.{probe}", return_value=False))
        measured = WORK[work](read_demo(dtype), options)
    print(json.dumps(measured))


def measure(case: Sequence[str], options: argparse.Namespace) -> float | None:
    """Tokens a second of the processor's time, of one process; None where it took longer than the limit."""
    environment = os.environ | INSTRUCTIONS[case[0]] | _ENVIRONMENT
    command = [sys.executable, __file__, "--only", *case, "--questions", str(options.questions), "--steps", str(options.steps)]
    try:
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=options.limit_s)
    except subprocess.TimeoutExpired:
        return None
    measured = json.loads(done.stdout.splitlines()[-1])
    return round(measured["tokens"] / measured["cpu_s"], 1)


def summarize(speeds: list[float | None]) -> dict[str, Any]:
    """The median of the repetitions, and all of them."""
    known = [speed for speed in speeds if speed is not None]
    return {"tokens_per_cpu_s": statistics.median(known) if known else None, "each": speeds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=16)
    parser.add_argument("--steps", type=int, default=2, help="steps of training that are timed")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--limit-s", type=float, default=300, help="seconds that a measurement may take, its start included")
    parser.add_argument("--only", nargs=3, metavar=("INSTRUCTIONS", "DTYPE", "WORK"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        measure_here(options)
        return
    cases = list(itertools.product(INSTRUCTIONS, DTYPES, WORK))
    speeds: dict[tuple[str, ...], list[float | None]] = {case: [] for case in cases}
    for _ in range(options.repeats):  # one round after the other: other programs slow all cases alike
        for case in cases:
            speeds[case].append(measure(case, options))
            print(*case, speeds[case][-1], flush=True)
        rows = [dict(zip(("instructions", "dtype", "work"), case, strict=True)) | summarize(speeds[case]) for case in cases]
        write_result(
            "cpu_dtype", {"questions": options.questions, "steps": options.steps, "limit_s": options.limit_s, "rows": rows}
        )


if __name__ == "__main__":
    main()
