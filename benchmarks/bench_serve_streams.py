"""In how many messages the endpoint's application sends streamed chats, its CPU time, and how long their first events take.

python benchmarks/bench_serve_streams.py [--streams 200] [--clients 100] [--output-tokens 128] [--step-ms 15]

The application of a replica with vLLM's engine around a model of a set step time (`timed_model.py`), called in this process, in
turns as it is and without a part of it. `--streams` requests that come at once, without `stream_pacing`: what Ray Serve
would pass on is counted. `--clients` that ask again as soon as they have their replies, without `Preparation`: what the
first events take. Needs no GPU and no Ray.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from record import write_result
from timed_model import make_plugin
from vllm.utils.gc_utils import freeze_gc_heap

from drag_ray.agent.config import AgentConfig
from drag_ray.engine.config import EngineConfig
from drag_ray.serve.adapters.engine_adapters import EngineAdapters
from drag_ray.serve.config import ServeConfig
from drag_ray.serve.ingress.stream_pacing import StreamPacing
from drag_ray.serve.openai_app import build_openai_app
from drag_ray.serve.settings import AppSettings

PATH = "/v1/chat/completions"
ROUNDS = 3


async def call_no_registry(method: str, *arguments: Any) -> None:
    """Loads nothing."""
    raise AssertionError("nothing is to be loaded")


def main() -> None:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= make_plugin(Path(folder), arguments.step_ms, arguments.token_us)
        sys.path.insert(0, folder)
        results = asyncio.run(measure(arguments))
    write_result(arguments.name, {"options": vars(arguments)} | results)


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """All ways in turns, and one stream alone."""
    engine_config = EngineConfig(max_model_len=2048, max_num_seqs=256, cpu_kv_cache_gib=2)
    serve = ServeConfig(max_body_mib=1, max_tokens=2048, max_sequences=1, max_question_chars=1)
    settings = AppSettings(serve, engine_config, AgentConfig())
    guard, engine = await build_openai_app(settings, EngineAdapters(serve.served_name), call_no_registry, lambda: 1)
    paced: StreamPacing = guard.app
    in_turn: Any = paced.app
    bursts = {"plain": in_turn, "paced": paced}
    loops = {"together": StreamPacing(in_turn.app), "in_turn": paced}
    rounds: dict[str, list[dict[str, float]]] = {way: [] for way in (*bursts, *loops)}
    await measure_round(guard, arguments.streams, arguments)
    freeze_gc_heap()  # as vLLM's server does once it has started
    for _ in range(ROUNDS):
        for way, app in (bursts | loops).items():
            guard.app = app
            seen = measure_round(guard, arguments.streams, arguments) if way in bursts else measure_loop(guard, arguments)
            rounds[way].append(await seen)
            print(way, json.dumps(rounds[way][-1]), flush=True)
    alone = await measure_round(guard, 1, arguments)
    engine.shutdown()
    medians = {
        way: {name: float(np.median([seen[name] for seen in all_seen])) for name in all_seen[0]}
        for way, all_seen in rounds.items()
    }
    return medians | {"paced_alone": alone, "rounds": rounds}


async def measure_round(app: Any, num_streams: int, arguments: argparse.Namespace) -> dict[str, float]:
    """So many streams at once: what is sent, and the CPU time of this process."""
    began, cpu_began = time.perf_counter(), time.process_time()
    answers = await asyncio.gather(*(ask(app, number, arguments) for number in range(num_streams)))
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    bodies = [b"".join(message.get("body", b"") for _, message in answer) for answer in answers]
    for body in bodies:
        *_, last, done = body.split(b"\n\ndata: ")
        assert done == b"[DONE]\n\n", done
        assert json.loads(last)["usage"]["completion_tokens"] == arguments.output_tokens
    return {
        "messages_per_request": round(sum(len(answer) for answer in answers) / num_streams, 2),
        "events_per_request": round(sum(body.count(b"data: ") for body in bodies) / num_streams, 2),
        "messages_per_s": round(sum(len(answer) for answer in answers) / seconds, 1),
        "tokens_per_s": round(num_streams * arguments.output_tokens / seconds, 1),
        "cpu_ms_per_request": round(1e3 * cpu_s / num_streams, 2),
        "median_first_event_ms": round(1e3 * float(np.median([answer[1][0] for answer in answers])), 1),
    }


async def measure_loop(app: Any, arguments: argparse.Namespace) -> dict[str, float]:
    """Clients that ask again as soon as they have their replies: what they see once they have had some."""
    began = time.perf_counter()
    seen: list[tuple[float, float]] = []

    async def ask_on(number: int) -> None:
        while (asked := time.perf_counter() - began) < arguments.loop_s:
            answer = await ask(app, number, arguments)
            if asked > arguments.loop_s / 3:
                seen.append((time.perf_counter() - began, answer[1][0]))

    await asyncio.gather(*(ask_on(number) for number in range(arguments.clients)))
    ends, first_events = np.array(seen).T
    counted = ends < arguments.loop_s
    return {
        "requests_per_s": round(float(counted.sum() / (arguments.loop_s - ends.min())), 1),
        "median_first_event_ms": round(1e3 * float(np.median(first_events)), 1),
        "p90_first_event_ms": round(1e3 * float(np.quantile(first_events, 0.9)), 1),
    }


async def ask(app: Any, number: int, arguments: argparse.Namespace) -> list[tuple[float, Any]]:
    """The messages of the answer to a chat, with the seconds until each."""
    request = {
        "model": "base",
        "messages": [{"role": "user", "content": f"{number} {time.time()}" + " word" * arguments.input_words}],
        "max_tokens": arguments.output_tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    body = json.dumps(request).encode()
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "root_path": "",
    }
    scope |= {"path": PATH, "raw_path": PATH.encode(), "query_string": b"", "headers": headers}
    scope |= {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}
    sent, parts, began = (
        list[tuple[float, Any]](),
        [{"type": "http.request", "body": body, "more_body": False}],
        time.perf_counter(),
    )

    async def receive() -> Any:
        return parts.pop() if parts else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append((time.perf_counter() - began, message))

    await app(scope, receive, send)
    return sent


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=200, help="at once")
    parser.add_argument("--clients", type=int, default=100, help="that ask again and again")
    parser.add_argument("--loop-s", type=float, default=12.0, help="seconds that they do")
    parser.add_argument("--input-words", type=int, default=200)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--step-ms", type=float, default=15.0)
    parser.add_argument("--token-us", type=float, default=0.0, help="of a step, microseconds for each token")
    parser.add_argument("--name", default="serve_streams", help="of the result")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
