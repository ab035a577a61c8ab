"""Output tokens per second of a collection, beside the same engine given the same prompts all at once.

python benchmarks/bench_collect_throughput.py --index-dir runs/demo/index --model MODEL [--load-format dummy] [--rollouts 1024]

Both sides run on this machine's GPUs, one after the other, in processes of their own:

collect   the collect stage's own path: Ray Data, engine actors, searches, several turns. A reply has a fixed number of
          tokens (`ignore_eos`); its text is replaced by a scripted action, so that random weights make real rollouts of one
          to `--turns` turns. With `--real` nothing is replaced and replies end where the model ends them.
offline   vLLM's own `LLM.generate` on the prompts and reply lengths that the collection had, all submitted at once.

Both have the same engine options, sampling and prefix caching. Times run from the first request after a warm-up to the last
reply, so that neither side is charged for loading the model and compiling its kernels; several engines begin together.

With `--step-ms`, on a machine without a GPU, the model is one whose steps take that time (and `--token-us` a token): what a
collection costs beside the model, and what it takes in at most.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from unittest import mock

import polars as pl
import psutil
import pyarrow.parquet as pq
import ray
import torch
from record import write_result
from watch import Watch

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.task import Policy
from drag_ray.cluster.connection import ClusterConfig, connect
from drag_ray.cluster.nodes import NodeResources
from drag_ray.corpus import image_store
from drag_ray.corpus.questions import draw_split
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import Generation, ImageSource, Request
from drag_ray.engine.sampling import PRESETS
from drag_ray.engine.vllm import VllmEngine, build_engine_args, build_image_options
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.folder import TRAJECTORIES_DIR_NAME
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.plan import build_plan
from drag_ray.rollout.pool import size_pool
from drag_ray.rollout.runner import run_plan

PRESET = "default"
WARM_UP = 48
"""copies of the first request that an engine answers before the clock starts: kernels are compiled for the shapes that they meet,
and the side that runs second would find them on disk"""
START_LIMIT_S = 900
"""seconds that a warm engine waits for the others"""


class TimedEngine(VllmEngine):
    """An engine that writes down when each request began and ended, one line each, in `folder`.

    It begins when `num_engines` of them are warm: what is measured is the work, not who loaded its model first.
    """

    def __init__(
        self, config: EngineConfig, images: ImageSource | None, folder: str, num_engines: int, options: dict[str, Any]
    ) -> None:
        with mock.patch("drag_ray.engine.vllm.build_engine_args", functools.partial(build_engine_args, **options)):
            super().__init__(config, images)
        name = str(time.time_ns())
        self._log = (Path(folder) / f"requests-{name}.jsonl").open("w", buffering=1 << 16)
        self._ready = Path(folder) / f"ready-{name}"
        self._num_engines = num_engines
        self._running = 0
        self._warm_up: asyncio.Task[None] | None = None

    async def _warm(self, request: Request) -> None:
        copies = (dataclasses.replace(request, seed=number) for number in range(WARM_UP))
        await asyncio.gather(*(VllmEngine.__call__(self, copy) for copy in copies))
        self._ready.write_text(str(time.time()))
        async with asyncio.timeout(START_LIMIT_S):
            while len(list(self._ready.parent.glob("ready-*"))) < self._num_engines:
                await asyncio.sleep(0.02)

    async def __call__(self, request: Request) -> Generation:
        self._warm_up = self._warm_up or asyncio.create_task(self._warm(request))
        await asyncio.shield(self._warm_up)
        began = time.time()
        self._running += 1
        generation = await super().__call__(request)
        self._running -= 1
        self._log.write(json.dumps([began, time.time(), len(generation.completion_token_ids)]) + "\n")
        if not self._running:
            self._log.flush()
        return generation


class ScriptedLengthEngine(TimedEngine):
    """Writes `max_tokens` tokens whatever they are, and says instead what the script of the question says."""

    def __init__(self, *args: Any, agent: AgentConfig) -> None:
        super().__init__(*args)
        self._prompts = Prompts(agent)
        self._protocol = get_protocol(agent.protocol)
        self._turns = agent.max_iterations

    def _build_sampling_params(self, request: Request) -> Any:
        params = super()._build_sampling_params(request)
        params.ignore_eos, params.stop, params.min_tokens = True, [], 0
        return params

    async def __call__(self, request: Request) -> Generation:
        generation = await super().__call__(request)
        question = self._prompts.question_of(request.messages)
        turn = sum(message["role"] == "assistant" for message in request.messages)
        last_turn = zlib.crc32(question.encode()) % self._turns
        words = question.split()
        query = " ".join(words[turn % max(1, len(words)) :]) or question
        text = self._protocol.render_answer("scripted") if turn >= last_turn else self._protocol.render_search(query)
        return dataclasses.replace(generation, text=text)


def run_collect(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One collection; its requests are left in `folder`."""
    agent = AgentConfig(
        max_iterations=arguments.turns,
        page_view=arguments.page_view,
        page_chars=arguments.page_chars,
        max_tokens=arguments.reply_tokens,
    )
    engine = build_engine_config(arguments)
    settings = RolloutConfig(
        concurrent_rollouts=arguments.concurrency,
        num_engines=arguments.engines,
        engines_per_gpu=arguments.engines_per_gpu,
    )
    num_questions = max(1, arguments.rollouts // arguments.samples)
    questions = draw_split(arguments.index_dir, "train", num_questions, seed=0)
    if len(questions) < num_questions:
        raise SystemExit(
            f"{arguments.index_dir} has {len(questions)} training questions; {arguments.rollouts} rollouts take {num_questions} "
            f"of them, {arguments.samples} of each. Raise --samples, or give another index."
        )
    plan = build_plan(questions, (PRESET,), arguments.samples, run_seed=0)
    kind, extra = (TimedEngine, {}) if arguments.real else (ScriptedLengthEngine, {"agent": agent})
    engine_options = build_timed_options(arguments)
    num_gpus = torch.cuda.device_count()
    nodes = [NodeResources(os.cpu_count() or 1, num_gpus)]
    num_engines = size_pool(settings, engine, use_gpu=num_gpus > 0, nodes=nodes).num_engines
    options = WorkerOptions(
        run_dir=folder.resolve(),
        index_dir=(arguments.index_dir / "search_index").resolve(),
        agent=agent,
        engine=engine,
        policies={"": Policy(engine.model)},
        concurrent_rollouts=arguments.concurrency,
        flush_s=5,
        image_dirs=((arguments.index_dir / image_store.DIR_NAME).resolve(),) if arguments.page_view == "image" else (),
        build_engine=lambda config, images, adapters: kind(config, images, str(folder), num_engines, engine_options, **extra),
    )
    started = time.time()
    with connect(ClusterConfig()), Load() as load:
        totals = run_plan(plan, options, settings, "collecting")
    ready = sorted(float(path.read_text()) - started for path in folder.glob("ready-*"))
    counts = {"rollouts": totals["finished"], "turns": totals["turns"], "wall_s": round(time.time() - started, 1)}
    counts["engines_ready_after_s"] = [round(seconds, 1) for seconds in ready]
    return counts | measure(folder) | load.describe()


class Load(Watch):
    """Load of the driver and Ray's own processes while a collection runs: CPU cores, and the object store's memory."""

    interval_s = 5.0

    def __enter__(self) -> Self:
        self._started, self._cpu_started, self._raylet_started = time.time(), time.process_time(), self._measure_raylet_s()
        self._peak_bytes = 0.0
        return super().__enter__()

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self._seconds = time.time() - self._started
        self._driver_s = time.process_time() - self._cpu_started
        self._raylet_s = self._measure_raylet_s() - self._raylet_started

    def describe(self) -> dict[str, float]:
        """The figures, after the end."""
        return {
            "driver_cpu_cores": round(self._driver_s / self._seconds, 3),
            "raylet_cpu_cores": round(self._raylet_s / self._seconds, 3),
            "object_store_peak_mb": round(self._peak_bytes / 1e6, 1),
        }

    def look(self) -> None:
        [node] = ray.nodes()
        address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5) as page:
            lines = page.read().decode().splitlines()
            used = sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("ray_object_store_memory{"))
            self._peak_bytes = max(self._peak_bytes, used)

    @staticmethod
    def _measure_raylet_s() -> float:
        times = [process.cpu_times() for process in psutil.process_iter() if process.name() in ("raylet", "gcs_server")]
        return sum(cpu.user + cpu.system for cpu in times)


def measure(folder: Path) -> dict[str, Any]:
    """Figures of the requests that engines wrote down."""
    per_engine = [[json.loads(line) for line in path.read_text().splitlines()] for path in folder.glob("requests-*.jsonl")]
    requests = [request for requests in per_engine for request in requests]
    first, last = min(request[0] for request in requests), max(request[1] for request in requests)
    tokens = sum(request[2] for request in requests)
    busy = [compute_busy_s([(began, ended) for began, ended, _ in requests]) for requests in per_engine]
    return {
        "engines": len(per_engine),
        "requests": len(requests),
        "output_tokens": tokens,
        "seconds": round(last - first, 2),
        "output_tokens_per_s": round(tokens / (last - first), 1),
        "idle_share_of_engines": [round(1 - seconds / (last - first), 4) for seconds in busy],
    }


def compute_busy_s(spans: list[tuple[float, float]]) -> float:
    """Seconds in which at least one request was in the engine."""
    busy, end = 0.0, 0.0
    for began, ended in sorted(spans):
        busy += max(0.0, ended - max(began, end))
        end = max(end, ended)
    return busy


def build_engine_config(arguments: argparse.Namespace) -> EngineConfig:
    """The engine of both sides."""
    return EngineConfig(
        model=arguments.model,
        load_format=arguments.load_format,
        max_model_len=arguments.max_model_len,
        max_num_seqs=arguments.max_num_seqs,
        tensor_parallel_size=arguments.tensor_parallel_size,
        logprobs=not arguments.no_logprobs,
        seeds=not arguments.no_seeds,
    )


def build_timed_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Engine options for `--step-ms`."""
    if not arguments.step_ms:
        return {}
    from timed_model import build_options

    return build_options(arguments.step_ms, arguments.token_us)


def run_offline(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """vLLM alone on the prompts of the collection in `folder`: one engine, with the places of all that share a GPU there."""
    from vllm import LLM, EngineArgs, SamplingParams
    from vllm.inputs import TokensPrompt

    of_turns = ("step", "prompt_token_ids", "completion_token_ids")
    files = map(pq.ParquetFile, (folder / TRAJECTORIES_DIR_NAME).glob("*.parquet"))
    trajectories = pl.concat([pl.DataFrame(schemas.read_columns(file, ("seed",), of_turns)) for file in files])
    turns = trajectories.explode("turns").unnest("turns")
    sampling = PRESETS[PRESET]
    prompts = [TokensPrompt(prompt_token_ids=ids) for ids in turns["prompt_token_ids"].to_list()]
    lengths = turns["completion_token_ids"].list.len().to_list()
    params = [
        SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=length,
            ignore_eos=True,
            seed=None if arguments.no_seeds else (seed + step) & 0x7FFF_FFFF,
            logprobs=None if arguments.no_logprobs else 0,
        )
        for length, seed, step in zip(lengths, turns["seed"], turns["step"], strict=True)
    ]
    engine = build_engine_config(arguments)
    places = {"max_num_seqs": engine.max_num_seqs * arguments.engines_per_gpu}
    engine_args = build_engine_args(
        engine, **places, **build_image_options(engine, images=None), **build_timed_options(arguments)
    )
    names = {field.name for field in dataclasses.fields(EngineArgs)}  # those of the asynchronous engine are more
    llm = LLM(**{name: value for name, value in vars(engine_args).items() if name in names})
    llm.generate(prompts[:1] * WARM_UP, params[:1] * WARM_UP, use_tqdm=False)
    started = time.time()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = time.time() - started
    tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    return {
        "requests": len(prompts),
        "prompt_tokens": sum(len(prompt["prompt_token_ids"]) for prompt in prompts),
        "output_tokens": tokens,
        "seconds": round(seconds, 2),
        "output_tokens_per_s": round(tokens / seconds, 1),
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index-dir", type=Path, default=Path("runs/demo/index"), help="folder of a finished index stage")
    parser.add_argument("--model", default="embedded", help="as engine.model")
    parser.add_argument("--load-format", default="auto", help="dummy for random weights")
    parser.add_argument("--real", action="store_true", help="replies as the model writes them")
    parser.add_argument("--rollouts", type=int, default=1024)
    parser.add_argument("--samples", type=int, default=4, help="rollouts of each question")
    parser.add_argument("--turns", type=int, default=4, help="turns of the longest rollouts")
    parser.add_argument("--reply-tokens", type=int, default=256)
    parser.add_argument("--page-chars", type=int, default=1000)
    parser.add_argument("--page-view", choices=("text", "image"), default="text", help="as agent.page_view; collect side alone")
    parser.add_argument("--concurrency", type=int, default=512, help="rollouts that an engine works on at the same time")
    parser.add_argument("--max-num-seqs", type=int, default=512)
    parser.add_argument("--max-model-len", type=int, default=8192)
    parser.add_argument("--engines", type=int, default=0, help="engines; 0 takes one a GPU, or what fits with --engines-per-gpu")
    parser.add_argument("--engines-per-gpu", type=int, default=1, help="as rollout.engines_per_gpu")
    parser.add_argument("--tensor-parallel-size", type=int, default=1, help="as engine.tensor_parallel_size")
    parser.add_argument("--step-ms", type=float, default=0, help="no model, but steps of this time; without a GPU")
    parser.add_argument("--token-us", type=float, default=0, help="with --step-ms: and so much for each token of a step")
    parser.add_argument("--no-seeds", action="store_true", help="as engine.seeds")
    parser.add_argument("--no-logprobs", action="store_true", help="as engine.logprobs")
    parser.add_argument("--folder", type=Path, help="where the collection is kept; a temporary folder by default")
    parser.add_argument("--side", choices=("both", "collect", "offline"), default="both")
    parser.add_argument("--name", default="collect_throughput", help="name of the result")
    arguments = parser.parse_args()
    if arguments.step_ms and torch.cuda.device_count():
        parser.error("--step-ms needs a machine without a GPU: on one vLLM asks a model for more than its steps")
    if arguments.token_us and not arguments.step_ms:
        parser.error("--token-us goes with --step-ms")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    if arguments.side != "both":
        run = run_collect if arguments.side == "collect" else run_offline
        print("RESULT " + json.dumps(run(arguments, arguments.folder)))
        return
    if not torch.cuda.device_count() and not arguments.step_ms:
        print("skipped: there is no GPU, and on a CPU the engine takes all of the time; --step-ms measures the rest there")
        return
    with tempfile.TemporaryDirectory(prefix="drag-ray-bench-") as scratch:
        folder = str(arguments.folder or scratch)
        results = {side: run_side([*sys.argv[1:], "--side", side, "--folder", folder]) for side in ("collect", "offline")}
    ratio = results["collect"]["output_tokens_per_s"] / results["offline"]["output_tokens_per_s"]
    write_result(arguments.name, {**results, "collect_over_offline": round(ratio, 4), "options": vars(arguments)})
    print(json.dumps(results, indent=1), f"\ncollect / offline: {ratio:.3f}")


def run_side(options: Sequence[str]) -> dict[str, Any]:
    """Run one side in a process of its own, which gives the GPU back when it ends."""
    command = [sys.executable, __file__, *options]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    found = [line for line in lines if line.startswith("RESULT ")]
    if process.returncode or not found:
        raise SystemExit(f"{' '.join(command)} failed with status {process.returncode}")
    return json.loads(found[-1].removeprefix("RESULT "))


if __name__ == "__main__":
    main()
