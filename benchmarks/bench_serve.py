"""The endpoint beside vLLM's own server with the same options: requests a second, and milliseconds to the first token.

python benchmarks/bench_serve.py --model MODEL [--adapter FOLDER] [--concurrency 200] [--requests 2000] [--open-load .7] [--kill]

Both halves to the end in three minutes on two cores, before a GPU is taken for them:

python benchmarks/bench_serve.py --kill --open-load .7 --open-requests 32 --step-ms 15 --concurrency 8 --requests 32 \\
    --clients 2 --input-tokens 64 --output-tokens 16 --max-model-len 512 --max-num-seqs 16 --gpu-memory-utilization 0.08 \\
    --name rehearsal

Both servers run on this machine, one after the other, and answer the same requests of vLLM's own client (`vllm bench serve`,
`openai-chat` with random prompts, streamed), in several processes, which warms each of them up first. What counts is the time in
which all processes of the client were at work. Each part's CPU time stands beside: a process whose peak is near one core is what
holds the others up. With `--step-ms` the model is one whose steps take a set time and no GPU (`timed_model.py`), and what is
compared is what is around it.

Replies of one length that are asked for anew as soon as they end make clients go in waves, which begin and end together. With
`--open-load` both servers answer a second workload, too, that does not wait for them: requests that come at random (Poisson) at
that share of the throughput that vLLM's server has just shown, with lengths that vary by half.

An event of the endpoint holds the tokens of several steps where many clients ask (`stream_pacing`), and vLLM's server one
unless told otherwise; so the time between events stands beside the throughput, and with `--tuned` vLLM's server is measured with
`--stream-interval 10`, with `--api-server-count 4` and with both, too.

With `--adapter` both servers have a LoRA adapter, and every request asks for it.

`--actors` measures the endpoint a second time, without engines that listen for themselves. With `--kill` the endpoint's engine
process is killed under load: how many requests fail then, how, and after how many seconds it
answers again, in a result of its own. Results are written as they come.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openai
import psutil
from process_load import watch_processes
from record import write_result
from timed_model import make_plugin

from drag_ray.engine.models.model_folder import resolve_model

SERVED_NAME, ADAPTER_NAME = "base", "tuned"
SERVERS = ("vllm", "drag_ray")
TUNED = {
    "vllm_stream_interval": ["--stream-interval", "10"],
    "vllm_api_servers": ["--api-server-count", "4"],
    "vllm_both": ["--stream-interval", "10", "--api-server-count", "4"],
}
"""vLLM's server as somebody would run it who knows that one event a token, or one process for HTTP, holds it up."""
BY_ACTORS = "drag_ray_by_actors"
ACTORS_ONLY = {"RAY_SERVE_ENABLE_DIRECT_INGRESS": "0", "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "1"}
"""Environment variables with which the proxy reaches engines by Ray's calls of actors alone."""
START_LIMIT_S = 600
STOP_LIMIT_S = 30
OPEN_SPREAD = 0.5
"""of the lengths of requests that come at random: from half of the set length to one and a half times it"""
KILL_AFTER_S = 5.0
ANSWER_LIMIT_S = 300.0
SERVE_JOB = Path(__file__).parent.parent / "jobs/serve.py"
CLIENT = """
import sys
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args(sys.argv[1:]))
"""
"""`vllm bench serve` without the command line around it, which does not start with the package for CPUs."""
VLLM_SERVER = """
import sys
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser, command = FlexibleArgumentParser(), ServeSubcommand()
command.subparser_init(parser.add_subparsers())
arguments = parser.parse_args(["serve", *sys.argv[1:]])
command.validate(arguments)
command.cmd(arguments)
"""
"""`vllm serve`, likewise."""
ROLES = {
    "EngineCore": "engine",
    "ProxyActor": "proxy",
    "ServeReplica": "server",
    "APIServer": "server",
    VLLM_SERVER: "server",
    CLIENT: "client",
}
"""What a process does, by what stands in its command line."""


def main() -> None:
    arguments = parse_arguments()
    arguments.model = resolve_model(arguments.model)
    results: dict[str, Any] = {"options": vars(arguments) | {"model": Path(arguments.model).name}}
    for server in (*SERVERS, *(TUNED if arguments.tuned else ()), *([BY_ACTORS] if arguments.actors else [])):
        with run_server(server, arguments, ACTORS_ONLY if server == BY_ACTORS else {}) as (url, process_id):
            closed = build_closed_load(arguments)
            run_clients(url, arguments, closed, arguments.concurrency)
            results[server] = measure(url, process_id, arguments, closed, arguments.requests)
            print(server, json.dumps(results[server]), flush=True)
            if arguments.open_load and server in SERVERS:
                rate = arguments.open_load * results["vllm"]["request_throughput"]
                seen = measure(url, process_id, arguments, build_open_load(rate, arguments), arguments.open_requests)
                results.setdefault("open", {"requests_per_s": round(rate, 3), "spread": OPEN_SPREAD})[server] = seen
                print(server, "open", json.dumps(seen), flush=True)
            if server == "drag_ray":
                compare(results)
            write_result(arguments.name, results)  # what was measured is kept, whatever comes after it
            if server == "drag_ray" and arguments.kill:
                killed = asyncio.run(kill_under_load(url, process_id, arguments))
                write_result(f"{arguments.name}_kill", {"options": results["options"], "kill": killed})


def compare(results: dict[str, Any]) -> None:
    """Add how the endpoint does beside vLLM's own server."""
    ours, theirs = results["drag_ray"], results["vllm"]
    results["throughput_of_vllm"] = round(ours["request_throughput"] / theirs["request_throughput"], 4)
    for workload in filter(None, (results, results.get("open"))):
        above = workload["drag_ray"]["median_ttft_ms"] - workload["vllm"]["median_ttft_ms"]
        workload["median_ttft_ms_above_vllm"] = round(above, 1)


def build_closed_load(arguments: argparse.Namespace) -> dict[str, Any]:
    """Options of vLLM's client for requests that come as soon as others are answered."""
    return {"max-concurrency": arguments.concurrency // arguments.clients}


def build_open_load(rate: float, arguments: argparse.Namespace) -> dict[str, Any]:
    """Options of vLLM's client for `rate` requests a second, of all its processes together, whatever was answered."""
    return {"request-rate": rate / arguments.clients, "random-range-ratio": OPEN_SPREAD}


@contextlib.contextmanager
def run_server(server: str, arguments: argparse.Namespace, variables: dict[str, str]) -> Generator[tuple[str, int]]:
    """One of the servers, with these environment variables, ready: its address and process id. What it prints is shown when it
    does not start."""
    url = f"http://127.0.0.1:{arguments.port}"
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        log = Path(folder) / "log"
        plugin = make_plugin(Path(folder), arguments.step_ms, arguments.token_us) if arguments.step_ms else {}
        with log.open("w") as output:
            command, environment = build_command(server, arguments, folder), os.environ | plugin | variables
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            wait_until_ready(url, process, log)
            yield url, process.pid
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server, and after `STOP_LIMIT_S` all that it has started, whatever it waits for."""
    try:
        parts = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        parts = []
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_LIMIT_S)
    for part in parts:
        with contextlib.suppress(psutil.NoSuchProcess):
            part.kill()
    process.kill()
    process.wait()


def build_command(server: str, arguments: argparse.Namespace, folder: str) -> list[str]:
    """The command that starts a server with the engine options of both."""
    engine = {
        "model": arguments.model,
        "dtype": arguments.dtype,
        "max-model-len": arguments.max_model_len,
        "max-num-seqs": arguments.max_num_seqs,
        "gpu-memory-utilization": arguments.gpu_memory_utilization,
    }
    flags = ["enforce-eager"] if arguments.enforce_eager else []
    if server != "drag_ray" and server != BY_ACTORS:
        if arguments.step_ms:  # as `engine.vllm` has it for engines on CPUs
            engine |= {"max-num-batched-tokens": max(arguments.max_model_len, 4096), "block-size": 32}
            flags.append("no-enable-chunked-prefill")
        options = [text for name, value in engine.items() for text in (f"--{name}", str(value))] + [f"--{name}" for name in flags]
        options += TUNED.get(server, [])
        if arguments.adapter:
            options += ["--enable-lora", "--max-loras", "1", "--lora-modules", f"{ADAPTER_NAME}={arguments.adapter}"]
        start = [sys.executable, "-c", VLLM_SERVER, "--enable-prefix-caching", "--disable-log-stats"]
        return [*start, *options, "--served-model-name", SERVED_NAME, "--host", "127.0.0.1", "--port", str(arguments.port)]
    options = [text for name, value in engine.items() for text in (f"--engine.{name}", str(value))]
    options += [f"--engine.{name}" for name in flags]
    options += ["--serve.adapters", json.dumps([f"{ADAPTER_NAME}={arguments.adapter}"])] if arguments.adapter else []
    start = [sys.executable, str(SERVE_JOB), "--run-dir", folder, "--serve.port", str(arguments.port)]
    return [*start, *options, "--serve.max-queued-requests", str(2 * arguments.concurrency)]


def name_asked(arguments: argparse.Namespace) -> str:
    """The model that requests name."""
    return ADAPTER_NAME if arguments.adapter else SERVED_NAME


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the list of models."""
    for _ in range(START_LIMIT_S):
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/v1/models", timeout=5):
            return
        if process.poll() is not None:
            break
        time.sleep(1)
    raise SystemExit(f"the server did not start:\n{log.read_text()[-20000:]}")


def measure(
    url: str, server_id: int, arguments: argparse.Namespace, load_options: dict[str, Any], num_requests: int
) -> dict[str, Any]:
    """Figures of vLLM's client, and the CPU time that they cost."""
    with watch_processes(
        [server_id, os.getpid()], lambda line: next((part for sign, part in ROLES.items() if sign in line), "")
    ) as load:
        results = run_clients(url, arguments, load_options, num_requests)
    return summarize(results) | {"cpu": load.summarize(num_requests)}


def run_clients(url: str, arguments: argparse.Namespace, load_options: dict[str, Any], num_requests: int) -> list[dict[str, Any]]:
    """The records of each process of the client about each of its requests."""
    options = {
        "backend": "openai-chat",
        "base-url": url,
        "endpoint": "/v1/chat/completions",
        "model": name_asked(arguments),
        "tokenizer": arguments.model,
        "dataset-name": "random",
        "random-input-len": arguments.input_tokens,
        "random-output-len": arguments.output_tokens,
        "num-prompts": num_requests // arguments.clients,
    } | load_options
    with tempfile.TemporaryDirectory() as folder:
        processes: list[subprocess.Popen[bytes]] = []
        for number in range(arguments.clients):
            files = {"seed": number, "result-dir": folder, "result-filename": f"{number}.json"}
            command = [text for name, value in (options | files).items() for text in (f"--{name}", str(value))]
            flags = ["--ignore-eos", "--save-result", "--save-detailed", "--disable-tqdm"]
            processes.append(subprocess.Popen([sys.executable, "-c", CLIENT, *command, *flags], stdout=subprocess.DEVNULL))
        if [process for process in processes if process.wait()]:
            raise SystemExit("a process of the client failed")
        return [json.loads((Path(folder) / f"{number}.json").read_text()) for number in range(arguments.clients)]


def summarize(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Requests a second while all processes of the client were at work, and latencies of the requests that ended then."""
    columns = ("start_times", "ttfts", "output_lens")
    starts, first_s, tokens = (np.concatenate([result[name] for result in results]) for name in columns)
    further_s = np.array([sum(gaps) for result in results for gaps in result["itls"]])
    ends = starts + first_s + further_s
    client = np.repeat(np.arange(len(results)), [len(result["ttfts"]) for result in results])
    begin = max(starts[client == number].min() for number in range(len(results)))
    end = min(ends[client == number].max() for number in range(len(results)))
    if begin >= end:  # too few requests for clients that start seconds apart: a rehearsal, whose numbers say nothing
        print("the processes of the client were never at work together: all requests count", flush=True)
        begin, end = starts.min() - 1e-9, ends.max()
    is_good = np.array([not error for result in results for error in result["errors"]])
    counted = is_good & (begin < ends) & (ends <= end)
    first_ms, further_ms = 1e3 * first_s[counted], 1e3 * further_s[counted] / np.maximum(1, tokens[counted] - 1)
    gaps = [np.array(one) for result in results for one in result["itls"]]
    event_ms = 1e3 * np.concatenate([one for one, counts in zip(gaps, counted, strict=True) if counts])
    numbers = {
        "request_throughput": counted.sum() / (end - begin),
        "output_throughput": tokens[counted].sum() / (end - begin),
        "median_ttft_ms": np.median(first_ms),
        "p99_ttft_ms": np.quantile(first_ms, 0.99),
        "median_tpot_ms": np.median(further_ms),
        "p99_tpot_ms": np.quantile(further_ms, 0.99),
        "tokens_per_event": tokens[counted].sum() / (len(event_ms) + counted.sum()),
        "median_event_gap_ms": np.median(event_ms),
        "p99_event_gap_ms": np.quantile(event_ms, 0.99),
    }
    counts = {"completed": int(is_good.sum()), "failed": int((~is_good).sum()), "counted": int(counted.sum())}
    return counts | {name: round(float(value), 3) for name, value in numbers.items()}


def find_engines(server_id: int) -> list[psutil.Process]:
    """The processes of vLLM's engine that a server has begun; another server's beside it are not among them."""
    begun = psutil.Process(server_id).children(recursive=True)
    return [process for process in begun if "EngineCore" in "".join(process.cmdline())]


async def kill_under_load(url: str, server_id: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Kill the engine's process while all clients ask, and see what they get until one is answered again."""
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)
    outcomes: Counter[str] = Counter()
    asked = name_asked(arguments)
    killed_at, answered_at, give_up_at = 0.0, 0.0, time.monotonic() + ANSWER_LIMIT_S

    async def ask() -> None:
        nonlocal answered_at
        while not answered_at and (began := time.monotonic()) < give_up_at:
            try:
                messages: Any = [{"role": "user", "content": f"Count from {began} on."}]
                await client.chat.completions.create(model=asked, messages=messages, max_tokens=arguments.output_tokens)
            except openai.APIError as error:
                outcomes[f"{type(error).__name__} {getattr(error, 'status_code', '')}".strip()] += 1
                await asyncio.sleep(0.5)
            else:
                outcomes["answered"] += 1
                if killed_at and began > killed_at:
                    answered_at = time.monotonic()

    clients = [asyncio.create_task(ask()) for _ in range(arguments.concurrency)]
    await asyncio.sleep(KILL_AFTER_S)
    killed = find_engines(server_id)
    killed_at = time.monotonic()
    for process in killed:
        process.kill()
    await asyncio.gather(*clients)
    seconds = round(answered_at - killed_at, 1) if answered_at else None
    return {"processes": len(killed), "answers_again_after_s": seconds, "requests": dict(outcomes)}


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded", help="as engine.model")
    parser.add_argument("--adapter", default="", help="folder of a LoRA adapter of the model, which both serve and are asked for")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.85)
    parser.add_argument("--enforce-eager", action="store_true")
    parser.add_argument("--concurrency", type=int, default=200, help="clients")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--input-tokens", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--open-load", type=float, default=0.0, help="share of vLLM's throughput; 0: no second workload")
    parser.add_argument("--open-requests", type=int, default=1500, help="of the second workload")
    parser.add_argument("--clients", type=int, default=4, help="processes of the client, which share the concurrency")
    parser.add_argument(
        "--step-ms", type=float, default=0.0, help="milliseconds of a step of a model that takes no GPU; 0: the model"
    )
    parser.add_argument("--token-us", type=float, default=0.0, help="of such a step, microseconds for each token")
    parser.add_argument("--port", type=int, default=8017)
    parser.add_argument("--kill", action="store_true", help="kill the endpoint's engine under load, too")
    parser.add_argument(
        "--actors", action="store_true", help="measure the endpoint also where Ray's calls of actors carry what clients read"
    )
    parser.add_argument("--tuned", action="store_true", help="measure vLLM's server with larger events and more processes, too")
    parser.add_argument("--name", default="serve_speed", help="of the result")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
