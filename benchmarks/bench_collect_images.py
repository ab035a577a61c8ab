"""Replies a second to prompts with three page images: this project's engine beside vLLM's own `LLM.chat`, and beside text alone.

python benchmarks/bench_collect_images.py --model MODEL [--load-format dummy] [--requests 192] [--cores 1 2 4 8 16]

Every prompt asks a question of its own about three pages of 960 x 1280 pixels, read from a store of page images; every reply
has `--reply-tokens` tokens. In processes of their own, one after the other:

plain   `LLM.chat` with the opened images, all prompts at once, no page shown twice
ours    `VllmEngine`, as the collect stage uses it, `--concurrency` prompts at a time:
        text    prompts of random tokens, as many as a prompt with images has: the bound without any work on images
        cold    every page new
        warm    the pages of `cold` again, in other company and with other questions
        cores   `cold` with all of the engine's processes on so many CPU cores (`warm` too, on the fewest)

Prefix caching is on everywhere. No prompt shares more than its system prompt with another one, so pages that were seen before
save work on images and nothing else.
"""

import argparse
import asyncio
import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil
from PIL import Image, ImageDraw
from record import write_result

from drag_ray.corpus.image_store import ImageStore
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import ImageSource, Request
from drag_ray.engine.sampling import PRESETS
from drag_ray.engine.vllm import VllmEngine, build_engine_args

WIDTH, HEIGHT, PAGES_PER_PROMPT = 960, 1280, 3
_WARM_UP = 32
"""requests before the clock starts: kernels are compiled for the shapes that they meet"""
_SYSTEM = {"role": "system", "content": "You answer questions from pages."}


def write_page(root: Path, number: int) -> str:
    """Draw a page of random words and return its key in the store."""
    words = random.Random(number)
    sheet = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(sheet)
    for top in range(30, HEIGHT - 30, 36):
        draw.text((30, top), " ".join(f"{words.getrandbits(28):x}" for _ in range(18)), fill="black")
    return ImageStore(root).write(sheet)


def write_pages(root: Path, first: int, count: int) -> list[str]:
    """The keys of new pages, drawn on all cores."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        return list(pool.map(write_page, [root] * count, range(first, first + count), chunksize=16))


def build_messages(question: str, keys: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """A conversation that shows pages."""
    parts = [{"type": "text", "text": question}, *({"type": "image", "image": key} for key in keys)]
    return _SYSTEM, {"role": "user", "content": parts}


def deal(keys: Sequence[str], num_requests: int) -> list[Sequence[str]]:
    """Pages for each request, no page twice."""
    return [keys[place * PAGES_PER_PROMPT : (place + 1) * PAGES_PER_PROMPT] for place in range(num_requests)]


def build_engine_config(arguments: argparse.Namespace) -> EngineConfig:
    """The engine of both sides."""
    return EngineConfig(
        model=arguments.model,
        load_format=arguments.load_format,
        max_model_len=8192,
        max_num_seqs=arguments.concurrency,
        logprobs=False,
        seeds=False,
        image_cache_gib=arguments.image_cache_gib,
        encoder_cache_gib=arguments.encoder_cache_gib,
    )


def run_plain(arguments: argparse.Namespace, root: Path, keys: Sequence[str]) -> dict[str, Any]:
    """vLLM alone."""
    from vllm import LLM, EngineArgs, SamplingParams

    limits = {"limit_mm_per_prompt": {"image": PAGES_PER_PROMPT, "video": 0}}
    engine_args = build_engine_args(build_engine_config(arguments), **limits)
    names = {field.name for field in dataclasses.fields(EngineArgs)}  # those of the asynchronous engine are more
    llm = LLM(**{name: value for name, value in vars(engine_args).items() if name in names})
    store = ImageStore(root)
    sampling = PRESETS["default"]
    params = SamplingParams(
        temperature=sampling.temperature, top_p=sampling.top_p, max_tokens=arguments.reply_tokens, ignore_eos=True
    )

    def build(number: int, shown: Sequence[str]) -> list[Any]:
        images = [{"type": "image_pil", "image_pil": store.open(key)} for key in shown]
        return [_SYSTEM, {"role": "user", "content": [{"type": "text", "text": f"Question {number}?"}, *images]}]

    dealt = deal(keys, len(keys) // PAGES_PER_PROMPT)
    conversations = [build(number, shown) for number, shown in enumerate(dealt)]
    llm.chat(conversations[:_WARM_UP], params, use_tqdm=False)
    started = time.time()
    outputs = llm.chat(conversations[_WARM_UP:], params, use_tqdm=False)
    return describe(len(outputs), time.time() - started, arguments) | {"prompt_tokens": len(outputs[0].prompt_token_ids or ())}


class FixedLengthEngine(VllmEngine):
    """An engine whose replies have `max_tokens` tokens."""

    def _build_sampling_params(self, request: Request) -> Any:
        params = super()._build_sampling_params(request)
        params.ignore_eos = True
        return params

    async def complete(self, prompt_token_ids: list[int], max_tokens: int) -> None:
        """A reply to tokens."""
        request = Request((), PRESETS["default"], max_tokens, seed=0)
        prompt: Any = {"prompt_token_ids": prompt_token_ids}
        async for _ in self._engine.generate(prompt, self._build_sampling_params(request), str(next(self._request_numbers))):
            pass


class OurSide:
    """The engine with its workloads."""

    def __init__(self, arguments: argparse.Namespace, root: Path, keys: Sequence[str]) -> None:
        self._arguments = arguments
        self._keys = list(keys)
        self._engine = FixedLengthEngine(build_engine_config(arguments), ImageSource(ImageStore(root).open, PAGES_PER_PROMPT))
        self._num_questions = 0

    async def run(self) -> dict[str, Any]:
        """Every workload."""
        arguments = self._arguments
        await self._ask_all(self._take(_WARM_UP))
        await self._complete_all(_WARM_UP)
        results: dict[str, Any] = {
            "text": await self._time("text", arguments.requests, lambda: self._complete_all(arguments.requests))
        }
        pages = self._take(arguments.requests)
        results["cold"] = await self._time("cold", arguments.requests, lambda: self._ask_all(pages))
        shuffled = [key for shown in pages for key in shown]
        random.Random(0).shuffle(shuffled)
        again = deal(shuffled, arguments.requests)
        results["warm"] = await self._time("warm", arguments.requests, lambda: self._ask_all(again))
        results["cores"] = {}
        for cores in sorted(arguments.cores, reverse=True):
            pin_processes(cores)
            fresh = self._take(arguments.curve_requests)
            figures = await self._time(
                f"cold on {cores} cores", arguments.curve_requests, lambda shown=fresh: self._ask_all(shown)
            )
            results["cores"][str(cores)] = {"cold": figures}
        if arguments.cores:
            half = again[: arguments.curve_requests]
            figures = await self._time(f"warm on {min(arguments.cores)} cores", len(half), lambda: self._ask_all(half))
            results["cores"][str(min(arguments.cores))]["warm"] = figures
        return results

    def _take(self, num_requests: int) -> list[Sequence[str]]:
        """New pages for so many requests."""
        taken, self._keys = self._keys[: num_requests * PAGES_PER_PROMPT], self._keys[num_requests * PAGES_PER_PROMPT :]
        return deal(taken, num_requests)

    async def _time(self, name: str, num_requests: int, work: Callable[[], Awaitable[None]]) -> dict[str, float]:
        print(f"PHASE {name}", flush=True)
        started = time.time()
        await work()
        figures = describe(num_requests, time.time() - started, self._arguments)
        print(name, figures, flush=True)
        return figures

    async def _ask_all(self, pages: Sequence[Sequence[str]]) -> None:
        places = asyncio.Semaphore(self._arguments.concurrency)

        async def ask(shown: Sequence[str]) -> None:
            self._num_questions += 1
            messages = build_messages(f"Question {self._num_questions}?", shown)
            async with places:
                await self._engine(Request(messages, PRESETS["default"], self._arguments.reply_tokens, seed=0))

        await asyncio.gather(*(ask(shown) for shown in pages))

    async def _complete_all(self, num_requests: int) -> None:
        places = asyncio.Semaphore(self._arguments.concurrency)
        draw = random.Random(num_requests)

        async def complete(token_ids: list[int]) -> None:
            async with places:
                await self._engine.complete(token_ids, self._arguments.reply_tokens)

        length = self._arguments.prompt_tokens
        prompts = [[draw.randrange(1000, 100_000) for _ in range(length)] for _ in range(num_requests)]
        await asyncio.gather(*(complete(prompt) for prompt in prompts))


def pin_processes(num_cores: int) -> None:
    """Confine this process and all that it has started to so many of the cores that it has."""
    cores = set(sorted(os.sched_getaffinity(0))[:num_cores])
    me = psutil.Process()
    for process in (*me.children(recursive=True), me):
        for thread in process.threads():
            os.sched_setaffinity(thread.id, cores)


def describe(num_requests: int, seconds: float, arguments: argparse.Namespace) -> dict[str, float]:
    """The figures of a workload."""
    rate = num_requests / seconds
    return {
        "requests": num_requests,
        "seconds": round(seconds, 2),
        "requests_per_s": round(rate, 3),
        "output_tokens_per_s": round(rate * arguments.reply_tokens, 1),
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model that sees images, as engine.model")
    parser.add_argument("--load-format", default="auto", help="dummy for random weights")
    parser.add_argument("--requests", type=int, default=192)
    parser.add_argument("--curve-requests", type=int, default=64, help="requests for each number of cores")
    parser.add_argument("--reply-tokens", type=int, default=256)
    parser.add_argument("--prompt-tokens", type=int, default=3679, help="tokens of a prompt of text")
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--cores", type=int, nargs="*", default=[], help="numbers of CPU cores for the curve")
    parser.add_argument("--image-cache-gib", type=float, default=24, help="as engine.image_cache_gib")
    parser.add_argument("--encoder-cache-gib", type=float, default=24, help="as engine.encoder_cache_gib")
    parser.add_argument("--side", choices=("both", "plain", "ours"), default="both")
    parser.add_argument("--folder", type=Path, help="where page images are kept; a temporary folder by default")
    parser.add_argument("--name", default="collect_images", help="name of the result")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.side != "both":
        keys = json.loads((arguments.folder / f"{arguments.side}.json").read_text())
        if arguments.side == "plain":
            figures = run_plain(arguments, arguments.folder, keys)
        else:
            figures = asyncio.run(OurSide(arguments, arguments.folder, keys).run())
        print("RESULT " + json.dumps(figures), flush=True)
        os._exit(0)  # an engine does not always end well at exit
    if not shutil.which("nvidia-smi"):
        print("skipped: there is no GPU, and on a CPU the engine takes all of the time")
        return
    with tempfile.TemporaryDirectory(prefix="drag-ray-bench-") as scratch:
        folder = arguments.folder or Path(scratch)
        plain = (arguments.requests + _WARM_UP) * PAGES_PER_PROMPT
        ours = plain + len(arguments.cores) * arguments.curve_requests * PAGES_PER_PROMPT
        keys = write_pages(folder, 0, max(plain, ours))
        (folder / "plain.json").write_text(json.dumps(keys[:plain]))
        (folder / "ours.json").write_text(json.dumps(keys))
        results = {side: run_side(side, folder) for side in ("plain", "ours")}
    rate = {name: results["ours"][name]["requests_per_s"] for name in ("text", "cold", "warm")}
    ratios = {
        "warm_over_text": round(rate["warm"] / rate["text"], 4),
        "cold_over_text": round(rate["cold"] / rate["text"], 4),
        "cold_over_plain": round(rate["cold"] / results["plain"]["requests_per_s"], 4),
    }
    write_result(arguments.name, {**results, **ratios, "options": vars(arguments)})
    print(json.dumps(results, indent=1), ratios)


def run_side(side: str, folder: Path) -> dict[str, Any]:
    """Run one side in a process of its own, which gives the GPU back when it ends."""
    command = [sys.executable, __file__, *sys.argv[1:], "--side", side, "--folder", str(folder)]
    found = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith("RESULT "):
                found = line.removeprefix("RESULT ")
    if not found:
        raise SystemExit(f"the {side} side failed with status {process.returncode}")
    return json.loads(found)


if __name__ == "__main__":
    main()
