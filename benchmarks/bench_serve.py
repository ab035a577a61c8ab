"""The endpoint beside vLLM's own server with the same options: requests a second, and milliseconds to the first token.

python benchmarks/bench_serve.py --model MODEL [--concurrency 200] [--requests 2000] [--kill]

Both servers run on this machine, one after the other, and answer the same requests of vLLM's own client (`vllm bench serve`,
`openai-chat` with random prompts, streamed), which warms each of them up first. With `--kill` the endpoint's engine process is
killed under load afterwards: how many requests fail then, how, and after how many seconds it answers again.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Collection, Generator, Sequence
from pathlib import Path
from typing import Any

import openai
import psutil
from record import write_result

from drag_ray.engine.embedded import resolve_model

SERVED_NAME = "base"
SERVERS = ("vllm", "drag_ray")
START_LIMIT_S = 600
STOP_LIMIT_S = 90
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
"""`vllm bench serve` without the command line around it, which the package for CPUs lacks."""
COUNTS = ("completed", "failed", "request_throughput", "output_throughput")
LATENCIES = ("median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "p99_tpot_ms")


def main() -> None:
    arguments = parse_arguments()
    arguments.model = resolve_model(arguments.model)
    results: dict[str, Any] = {"options": vars(arguments) | {"model": Path(arguments.model).name}}
    others = {process.pid for process in find_engines()}
    for server in SERVERS:
        with run_server(server, arguments) as url:
            results[server] = measure(url, arguments)
            print(server, json.dumps(results[server]), flush=True)
            if server == "drag_ray" and arguments.kill:
                results["kill"] = asyncio.run(kill_under_load(url, arguments, others))
    ours, theirs = results["drag_ray"], results["vllm"]
    results["throughput_of_vllm"] = round(ours["request_throughput"] / theirs["request_throughput"], 4)
    results["median_ttft_ms_above_vllm"] = round(ours["median_ttft_ms"] - theirs["median_ttft_ms"], 1)
    write_result(arguments.name, results)


@contextlib.contextmanager
def run_server(server: str, arguments: argparse.Namespace) -> Generator[str]:
    """One of the servers, ready; what it prints goes to a file that is named when it does not start."""
    url = f"http://127.0.0.1:{arguments.port}"
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as output:
            process = subprocess.Popen(build_command(server, arguments, folder), stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_until_ready(url, process, log)
            yield url
        finally:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_LIMIT_S)
            process.kill()


def build_command(server: str, arguments: argparse.Namespace, folder: str) -> list[str]:
    """How a server is started with the engine options of both."""
    engine = {
        "model": arguments.model,
        "dtype": arguments.dtype,
        "max-model-len": arguments.max_model_len,
        "max-num-seqs": arguments.max_num_seqs,
        "gpu-memory-utilization": arguments.gpu_memory_utilization,
    }
    flags = ["enforce-eager"] if arguments.enforce_eager else []
    if server == "vllm":
        options = [text for name, value in engine.items() for text in (f"--{name}", str(value))] + [f"--{name}" for name in flags]
        start = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enable-prefix-caching", "--disable-log-stats"]
        return [*start, *options, "--served-model-name", SERVED_NAME, "--host", "127.0.0.1", "--port", str(arguments.port)]
    options = [text for name, value in engine.items() for text in (f"--engine.{name}", str(value))]
    options += [f"--engine.{name}" for name in flags]
    start = [sys.executable, str(SERVE_JOB), "--run-dir", folder, "--serve.port", str(arguments.port)]
    return [*start, *options, "--serve.max-queued-requests", str(2 * arguments.concurrency)]


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the list of models."""
    for _ in range(START_LIMIT_S):
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/v1/models", timeout=5):
            return
        if process.poll() is not None:
            break
        time.sleep(1)
    raise SystemExit(f"the server did not start:\n{log.read_text()[-4000:]}")


def measure(url: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """What vLLM's client sees."""
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "backend": "openai-chat",
            "base-url": url,
            "endpoint": "/v1/chat/completions",
            "model": SERVED_NAME,
            "tokenizer": arguments.model,
            "dataset-name": "random",
            "random-input-len": arguments.input_tokens,
            "random-output-len": arguments.output_tokens,
            "num-prompts": arguments.requests,
            "num-warmups": arguments.concurrency,
            "max-concurrency": arguments.concurrency,
            "percentile-metrics": "ttft,tpot",
            "metric-percentiles": "99",
            "result-dir": folder,
            "result-filename": "result.json",
        }
        command = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        subprocess.run([sys.executable, "-c", CLIENT, *command, "--ignore-eos", "--save-result", "--disable-tqdm"], check=True)
        result = json.loads((Path(folder) / "result.json").read_text())
    return {name: round(result[name], 3) for name in (*COUNTS, *LATENCIES)}


def find_engines() -> list[psutil.Process]:
    """vLLM's engine processes on this machine."""
    return [process for process in psutil.process_iter(["cmdline"]) if "EngineCore" in "".join(process.info["cmdline"] or [])]


async def kill_under_load(url: str, arguments: argparse.Namespace, others: Collection[int]) -> dict[str, Any]:
    """Kill the engine's process while all clients ask, and see what they get until one is answered again.

    Args:
        others: process ids of engines that were there before, which are let live.
    """
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)
    outcomes: Counter[str] = Counter()
    killed_at, answered_at, give_up_at = 0.0, 0.0, time.monotonic() + ANSWER_LIMIT_S

    async def ask() -> None:
        nonlocal answered_at
        while not answered_at and (began := time.monotonic()) < give_up_at:
            try:
                messages: Any = [{"role": "user", "content": f"Count from {began} on."}]
                await client.chat.completions.create(model=SERVED_NAME, messages=messages, max_tokens=arguments.output_tokens)
            except openai.APIError as error:
                outcomes[f"{type(error).__name__} {getattr(error, 'status_code', '')}".strip()] += 1
                await asyncio.sleep(0.5)
            else:
                outcomes["answered"] += 1
                if killed_at and began > killed_at:
                    answered_at = time.monotonic()

    clients = [asyncio.create_task(ask()) for _ in range(arguments.concurrency)]
    await asyncio.sleep(KILL_AFTER_S)
    killed = [process for process in find_engines() if process.pid not in others]
    killed_at = time.monotonic()
    for process in killed:
        process.kill()
    await asyncio.gather(*clients)
    seconds = round(answered_at - killed_at, 1) if answered_at else None
    return {"processes": len(killed), "answers_again_after_s": seconds, "requests": dict(outcomes)}


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded", help="as engine.model")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.85)
    parser.add_argument("--enforce-eager", action="store_true")
    parser.add_argument("--concurrency", type=int, default=200, help="clients")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--input-tokens", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--port", type=int, default=8017)
    parser.add_argument("--kill", action="store_true", help="kill the endpoint's engine under load, too")
    parser.add_argument("--name", default="serve_speed", help="of the result")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
