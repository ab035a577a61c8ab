"""A collection and an endpoint under load for long: memory over time, and what became of each rollout and each request.

python benchmarks/bench_load.py [--part collect] [--rollouts 60000] [--concurrent 10000]
python benchmarks/bench_load.py [--part serve] [--clients 500] [--seconds 1800]
python benchmarks/bench_load.py --part serve --exchanges 3 --adapter FOLDER --searches 50 --seconds 300

collect   rollouts of two turns on a scripted engine, which takes its time for each reply, so that so many run at once. Each
          has to search for the word of its own question, to find its page, to give the word as its answer, and to be kept once.
serve     clients that ask one question after the other, in turns in a chat, in a chat that is streamed and with /v1/search, of
          an endpoint with a real engine. A client that is refused (429, 503) waits as long as it is told to and asks another. A
          chat must return the tokens of its own prompt, a search the page of its own question. A request is lost that has no
          answer within `--limit-s`, whose connection ends before, that fails, or is refused without a time to come back after.
          One more client looks at `/health` all the time. With `--exchanges` the index is exchanged so often, evenly over the
          time, and `--adapter` is loaded, asked and unloaded again and again. An answer of `/v1/search` must be of one index, and
          of none that is older than an index of which somebody had an answer before the request was sent.

All of it stays on this machine. Memory is that of the job and of all that it has started (Ray's own processes among them), looked
at from the moment when all is warm (`--warm-up`, a share of the time). Results: `collect_load.json`, `serve_load.json`, and with
exchanges `serve_exchanges.json`.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2
import numpy as np
from bench_serve import SERVE_JOB, STOP_LIMIT_S, wait_until_ready
from memory_watch import MemoryWatch
from record import write_result
from scripted_collection import (
    PatientEngine,
    build_options,
    build_question,
    build_word,
    count_rollouts,
    plan_rollouts,
    write_index,
)

from drag_ray.cluster.connection import ClusterConfig, connect
from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.engine.models.pretrained import load_tokenizer
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.runner import run_plan
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity

_LOOK_EVERY_S = 5.0
DRAIN_SHARE = 0.15
"""of a collection's time, in which fewer and fewer rollouts are left at its end"""
_EDITION = re.compile(r"edition (\d+)")
_PAGES_EACH = 2
_ADAPTER = "exchanged"
MOST = {"rollouts": 1_000_000, "concurrent": 50_000, "clients": 5000, "seconds": 7200}
"""of each option: the benchmark is for one machine"""


def run_collect(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """A collection, and what its folder holds then."""
    write_index(folder)
    plan = plan_rollouts(arguments.rollouts)
    peak_path, delay_s = folder / "peak", arguments.delay_s
    options = build_options(folder, arguments.concurrent, lambda config, images, adapters: PatientEngine(peak_path, delay_s))
    settings = RolloutConfig(num_engines=1, concurrent_rollouts=arguments.concurrent, max_failure_rate=0)
    with connect(ClusterConfig()), MemoryWatch(os.getpid(), interval_s=2) as watch:
        began = time.monotonic()
        run_plan(plan, options, settings, "collecting")
        seconds = time.monotonic() - began
    return {
        **count_rollouts(folder / "run", {task.id for task in plan}),
        "at_once": int(peak_path.read_text()),
        "seconds": round(seconds, 1),
        "rollouts_per_s": round(len(plan) / seconds, 1),
        "memory": watch.describe(arguments.warm_up * seconds, (1 - DRAIN_SHARE) * seconds),
    }


class Asker:
    """Requests of the clients, and the check that an answer is that of their question. Each method returns an outcome.

    Attributes:
        editions: the answers of `/v1/search` by the index that they are of.
    """

    def __init__(self, model: str, reply_tokens: int) -> None:
        self._tokenizer = load_tokenizer(model)
        self._reply_tokens = reply_tokens
        self.editions = Counter[int]()

    async def chat(self, client: httpx2.AsyncClient, number: int, model: str = "base") -> tuple[str, httpx2.Response]:
        response = await client.post("/v1/chat/completions", json=self._build_chat(number, model))
        if response.status_code != 200:
            return "", response
        reply = response.json()
        return self._judge(number, reply["prompt_token_ids"], reply["choices"][0]["message"]["content"]), response

    async def stream(self, client: httpx2.AsyncClient, number: int) -> tuple[str, httpx2.Response]:
        async with client.stream("POST", "/v1/chat/completions", json=self._build_chat(number) | {"stream": True}) as response:
            if response.status_code != 200:
                await response.aread()
                return "", response
            events = [line.removeprefix("data: ") async for line in response.aiter_lines() if line.startswith("data: ")]
        if events[-1:] != ["[DONE]"]:
            return "lost: the stream ended early", response
        chunks = [json.loads(event) for event in events[:-1]]
        tokens = next((chunk["prompt_token_ids"] for chunk in chunks if chunk.get("prompt_token_ids")), [])
        return self._judge(
            number, tokens, "".join(choice["delta"].get("content") or "" for c in chunks for choice in c["choices"])
        ), response

    async def search_alone(self, client: httpx2.AsyncClient, number: int) -> tuple[str, httpx2.Response]:
        return await self.search(client, number, {"model": "question"})

    async def search(
        self, client: httpx2.AsyncClient, number: int, more: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[str, httpx2.Response]:
        newest = max(self.editions, default=0)
        asked = {"question": build_question(number), "top_k": _PAGES_EACH, **more}
        response = await client.post("/v1/search", json=asked)
        if response.status_code != 200:
            return "", response
        found = response.json()
        files = [page["file"] for page in found["pages"]]
        if found["question"] != build_question(number) or files != [f"{build_word(number)}.pdf"] * _PAGES_EACH:
            return "of another question", response
        editions = {int(edition) for page in found["pages"] for edition in _EDITION.findall(page["snippet"])}
        if len(editions) != 1:
            return "of two indexes", response
        self.editions.update(editions)
        return "answered" if min(editions) >= newest else "of an older index", response

    def _build_chat(self, number: int, model: str = "base") -> dict[str, Any]:
        messages = [{"role": "user", "content": build_question(number)}]
        return {"model": model, "messages": messages, "max_tokens": self._reply_tokens, "return_token_ids": True}

    def _judge(self, number: int, prompt_tokens: Sequence[int], text: str) -> str:
        if not text:
            return "answered with nothing"
        return "answered" if build_question(number) in self._tokenizer.decode(prompt_tokens) else "of another question"


def judge_refusal(response: httpx2.Response) -> tuple[str, float]:
    """The meaning of a status other than 200, and the seconds after which its client asks again."""
    if response.status_code not in (429, 503) or "retry-after" not in response.headers:
        return f"lost: {response.status_code} {response.text[:80]}", 1.0
    return f"refused: {response.status_code}", float(response.headers["retry-after"])


async def watch_health(url: str, end: float, certificates: ssl.SSLContext) -> dict[str, Any]:
    """Statuses of `/health`, asked anew every few seconds until `end`, and the seconds that an answer takes."""
    statuses, taken = Counter[str](), list[float]()
    async with httpx2.AsyncClient(base_url=url, timeout=None, verify=certificates) as client:
        while (began := time.monotonic()) < end:
            statuses[str((await client.get("/health")).status_code)] += 1
            taken.append(time.monotonic() - began)
            await asyncio.sleep(_LOOK_EVERY_S)
    median, longest = np.quantile(taken, (0.5, 1)).round(2).tolist()
    return {"statuses": dict(statuses), "seconds": {"p50": median, "max": longest}}


async def exchange(url: str, arguments: argparse.Namespace, folder: Path) -> list[dict[str, float]]:
    """The seconds until each newer index was written, and was searched."""
    done: list[dict[str, float]] = []
    started = time.monotonic()
    async with httpx2.AsyncClient(base_url=url, timeout=arguments.limit_s) as client:
        for edition in range(1, arguments.exchanges + 1):
            await asyncio.sleep(started + edition * arguments.seconds / (arguments.exchanges + 1) - time.monotonic())
            before = (await client.get("/v1/index")).json()["fingerprint"]
            began = time.monotonic()
            await asyncio.to_thread(write_stage, folder, edition)
            written_s = time.monotonic() - began
            async with asyncio.timeout(arguments.limit_s):
                while (await client.get("/v1/index")).json()["fingerprint"] == before:
                    await asyncio.sleep(0.1)
            done.append({"written_s": round(written_s, 1), "searched_s": round(time.monotonic() - began, 1)})
    return done


async def exchange_adapters(url: str, asker: Asker, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Outcomes of an adapter that is loaded, asked until it is not refused, and unloaded, again and again."""
    done: list[dict[str, Any]] = []
    end = time.monotonic() + arguments.seconds
    async with httpx2.AsyncClient(base_url=url, timeout=arguments.limit_s) as client:
        while arguments.adapter and time.monotonic() < end:
            loaded = await client.post("/v1/load_lora_adapter", json={"lora_name": _ADAPTER, "lora_path": arguments.adapter})
            while not (asked := await asker.chat(client, 0, _ADAPTER))[0] and asked[1].status_code in (429, 503):
                await asyncio.sleep(1)
            unloaded = await client.post("/v1/unload_lora_adapter", json={"lora_name": _ADAPTER})
            outcome = asked[0] or judge_refusal(asked[1])[0]
            done.append({"loaded": loaded.status_code, "asked": outcome, "unloaded": unloaded.status_code})
    return done


async def ask_for(url: str, asker: Asker, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Outcomes of all clients until the time is over."""
    outcomes, seconds = Counter[str](), dict[str, list[float]]()
    numbers, end, certificates = count(), time.monotonic() + arguments.seconds, ssl.create_default_context()
    kinds: list[Callable[[httpx2.AsyncClient, int], Awaitable[tuple[str, httpx2.Response]]]] = [
        asker.chat,
        asker.stream,
        asker.search,
        *[asker.search_alone] * arguments.searches,
    ]

    async def ask() -> None:
        async with httpx2.AsyncClient(base_url=url, timeout=None, verify=certificates) as client:
            while (began := time.monotonic()) < end:
                number, wait_s = next(numbers), 0.0
                kind = kinds[number % len(kinds)]
                outcomes["sent"] += 1
                try:
                    async with asyncio.timeout(arguments.limit_s):
                        outcome, response = await kind(client, number)
                    if not outcome:
                        outcome, wait_s = judge_refusal(response)
                except TimeoutError:
                    outcome = f"lost: no answer in {arguments.limit_s:g} s"
                except httpx2.HTTPError as error:
                    outcome, wait_s = f"lost: {type(error).__name__}", 1.0
                outcomes[outcome] += 1
                if outcome == "answered":
                    seconds.setdefault(kind.__name__, []).append(time.monotonic() - began)
                await asyncio.sleep(wait_s)

    async with asyncio.TaskGroup() as clients:
        health = clients.create_task(watch_health(url, end, certificates))
        exchanged = clients.create_task(exchange(url, arguments, folder))
        adapters = clients.create_task(exchange_adapters(url, asker, arguments))
        for _ in range(arguments.clients):
            clients.create_task(ask())
    return {
        "requests": dict(outcomes),
        "unaccounted": 2 * outcomes["sent"] - outcomes.total(),
        "health": health.result(),
        "exchanges": {"index": exchanged.result(), "adapter": adapters.result(), "searches_by_index": dict(asker.editions)},
        "answered_per_s": round(outcomes["answered"] / arguments.seconds, 2),
        "seconds_of_answers": {
            kind: dict(
                zip(
                    ("num", "p50", "p99", "max"), [len(taken), *np.quantile(taken, (0.5, 0.99, 1)).round(2).tolist()], strict=True
                )
            )
            for kind, taken in sorted(seconds.items())
        },
    }


def write_stage(folder: Path, edition: int) -> None:
    """The index stage of an edition of the pages, finished in the place of the one before."""
    with StageFolder(folder / "index", Identity("index", {"edition": edition}, {}), keeps_earlier=True) as index:
        write_index(index.path, edition, _PAGES_EACH)
        index.finish({})


@contextmanager
def serve(arguments: argparse.Namespace, folder: Path) -> Generator[tuple[str, int]]:
    """An endpoint over the index, ready: its address and the job's process."""
    write_stage(folder, 0)
    url, log = f"http://127.0.0.1:{arguments.port}", folder / "log"
    options = {
        "run-dir": str(folder),
        "serve.port": arguments.port,
        "serve.device": "cpu",
        "serve.max-queued-requests": arguments.queued,
        "serve.max-wait-s": arguments.max_wait_s,
        "engine.model": arguments.model,
        "engine.max-num-seqs": arguments.max_num_seqs,
        "engine.max-model-len": 1024,
        "agent.max-tokens": arguments.reply_tokens,
        "serve.max-reply-s": arguments.limit_s,
        "serve.index-check-s": 1,
        **({"serve.adapter-dirs": Path(arguments.adapter).parent} if arguments.adapter else {}),
    }
    command = [sys.executable, str(SERVE_JOB), *(f"--{name}={value}" for name, value in options.items())]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until_ready(url, process, log)
        yield url, process.pid
    finally:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_LIMIT_S)
        process.kill()


def run_serve(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """An endpoint that all clients ask."""
    asker = Asker(resolve_model(arguments.model), arguments.reply_tokens)
    with serve(arguments, folder) as (url, pid), MemoryWatch(pid, interval_s=5) as watch:
        began = time.monotonic()
        asked = asyncio.run(ask_for(url, asker, arguments, folder))
        asked["all_clients_ended_after_s"] = round(time.monotonic() - began, 1)
    return asked | {"memory": watch.describe(arguments.warm_up * arguments.seconds, arguments.seconds)}


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("both", "collect", "serve"), default="both")
    parser.add_argument("--rollouts", type=int, default=60_000)
    parser.add_argument("--concurrent", type=int, default=10_000, help="rollouts at once")
    parser.add_argument("--delay-s", type=float, default=20, help="what a scripted reply takes, on average")
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=1800, help="for which the clients ask")
    parser.add_argument("--searches", type=int, default=0, help="without a model, for each with one")
    parser.add_argument("--exchanges", type=int, default=0, help="of the index, while the clients ask")
    parser.add_argument("--adapter", default="", help="a folder of an adapter of the model, loaded and unloaded all the while")
    parser.add_argument("--limit-s", type=float, default=300, help="after which a request counts as lost")
    parser.add_argument("--model", default="embedded", help="as engine.model")
    parser.add_argument(
        "--max-num-seqs", type=int, default=32, help="as engine.max_num_seqs; the engine takes four times as many"
    )
    parser.add_argument("--queued", type=int, default=256, help="as serve.max_queued_requests")
    parser.add_argument("--max-wait-s", type=float, default=30, help="as serve.max_wait_s")
    parser.add_argument("--reply-tokens", type=int, default=8)
    parser.add_argument("--port", type=int, default=8018)
    parser.add_argument("--warm-up", type=float, default=0.25, help="share of the time after which memory should be flat")
    arguments = parser.parse_args(argv)
    for name, most in MOST.items():
        if not 0 < getattr(arguments, name) <= most:
            parser.error(f"--{name} is {getattr(arguments, name)}; it can be 1 to {most}")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    for part, run in (("collect", run_collect), ("serve", run_serve)):
        if arguments.part in ("both", part):
            with tempfile.TemporaryDirectory(prefix="drag-ray-load-") as folder:
                results = run(arguments, Path(folder))
            print(json.dumps(results), flush=True)
            name = "serve_exchanges" if part == "serve" and arguments.exchanges else f"{part}_load"
            write_result(name, results | {"options": vars(arguments)})


if __name__ == "__main__":
    main()
