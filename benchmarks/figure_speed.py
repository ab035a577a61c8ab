"""Tables of how fast it is: search, process and format, training, serving."""

from collections.abc import Callable
from statistics import median
from typing import Any

from figure_cells import read_results, to_paragraph, to_table

_INGRESS = {
    "relay": "the endpoint: relay, pacing",
    "relay_interval": "relay, vLLM's `stream_interval`",
    "haproxy": "Ray Serve's HAProxy, pacing",
    "haproxy_interval": "Ray Serve's HAProxy, `stream_interval`",
}


def write_search_speed() -> str:
    """One thread, beside other engines."""
    results = read_results("search_speed")
    engines = {
        "drag_ray": "drag_ray",
        "bm25s_numba": "bm25s with numba",
        "sqlite_fts5": "SQLite FTS5",
        "whoosh": "Whoosh",
    }

    def write_time(ms: float) -> str:
        return f"{ms:.2f}" if ms < 1 else f"{ms:.1f}"

    found = [(results["one_thread"][name], results["builds"][name]) for name in engines]
    rows = [
        ["queries per CPU second", *(f"{search['queries_per_cpu_s']:,.0f}" for search, _ in found)],
        ["p50 / p99", *(f"{write_time(search['p50_ms'])} / {write_time(search['p99_ms'])} ms" for search, _ in found)],
        ["building, CPU seconds (wall)", *(f"{build['cpu_s']:.2f} ({build['wall_s']:.2f})" for _, build in found)],
    ]
    return to_table(["", *engines.values()], rows)


def write_finetune() -> str:
    """Training speed of two workers."""
    results = read_results("finetune_speed")
    names = {
        "2 workers, zero2": "page images, ZeRO-2",
        "2 workers, zero3": "page images, ZeRO-3",
        "2 workers, zero3, adapters not sharded": "page images, ZeRO-3, adapters whole",
        "2 workers, zero3, adapters not sharded, another day": "the same on another host",
        "2 workers, zero2, reward model": "reward model, ZeRO-2",
        "2 workers, zero3, reward model": "reward model, ZeRO-3",
    }
    rows = [
        [text, f"{results[name]['tokens_per_s']:,.0f}", f"{results[name]['gpu_memory_gib']:.1f} GiB"]
        for name, text in names.items()
    ]
    return to_table(["", "tokens/s", "memory a GPU"], rows)


_WAYS = {
    "packed": "the stage",
    "packed+liger": "with `finetune.liger`",
    "trl": "a script of plain TRL, packed",
    "trl+liger": "with Liger",
}


def write_finetune_packing() -> str:
    """Training speed of packed rows, by the stage and by plain TRL, and the utilisation of the GPU."""
    measured = read_results("finetune_stage")
    results = read_results("finetune_packing") | measured

    def write_cell(name: str, way: str) -> str:
        found, of_token = results[f"{name}, {way}"], measured[f"{name}, packed"]["token_gflop"] / 1000
        share = found["tokens_per_s"] * of_token / measured["matrix_products_tflops"]
        return f"{found['tokens_per_s']:,.0f}, {share * 100:.0f} %, {found['gpu_memory_gib']:.0f} GiB"

    names = {
        f"{size}, rows of {rows}": f"{shapes}, rows of {rows}"
        for shapes, size in (("1.5b", "1.5B"), ("7b", "7B"))
        for rows in ("300-700", "4096")
    }
    cells = [[text, *(write_cell(name, way) for name in names.values())] for way, text in _WAYS.items()]
    return to_table(["tokens/s, utilisation, memory of the GPU", *names], cells)


def write_finetune_beside() -> str:
    """Training speed of packed rows of text with Liger, by the stage and by plain TRL, in one run on one GPU."""
    results, rows = read_results("finetune_text_rows"), []
    for name in (name.removesuffix(", packed+liger") for name in results if name.endswith(", packed+liger")):
        stage, plain = results[f"{name}, packed+liger"], results[f"{name}, trl+liger"]
        share = stage["tokens_per_s"] * stage["token_gflop"] / 1000 / results["matrix_products_tflops"]
        rows.append(
            [
                name.removeprefix("8b, "),
                f"{stage['tokens_per_s']:,.0f}, {share * 100:.0f} %, {stage['gpu_memory_gib']:.0f} GiB",
                f"{plain['tokens_per_s']:,.0f}, {plain['gpu_memory_gib']:.0f} GiB",
                f"{stage['tokens_per_s'] / plain['tokens_per_s']:.2f}",
            ]
        )
    return to_table(["Qwen3-VL-8B", "the stage: tokens/s, utilisation, memory", "plain TRL", "times as fast"], rows)


_PARTS = {
    "liger": "the stage with `finetune.liger`",
    "plain": "without Liger",
    "peft": "with PEFT's own layers",
    "no-dropout": "without dropout",
    "bfloat16-adapter": "adapter in bfloat16",
    "compiled": "blocks compiled, without Liger",
    "compiled-liger": "blocks compiled, with Liger",
    "offloaded": "activations offloaded",
    "twice-the-rows": "twice the rows a step",
}


def write_finetune_parts() -> str:
    """Speed of a step of packed 7B, and of variants of it."""
    results = read_results("finetune_parts")
    found = [(text, results[name]) for name, text in _PARTS.items() if "tokens_per_s" in results.get(name, {})]
    rows = [
        [text, f"{run['tokens_per_s']:,.0f}", f"{run['utilisation'] * 100:.0f} %", f"{run['peak_gib']:.0f} GiB"]
        for text, run in found
    ]
    return to_table(["two rows of 4,096 tokens, 7B", "tokens/s", "utilisation", "peak memory"], rows)


_SERVERS = {
    "vllm": "`vllm serve`",
    "vllm_stream_interval": "with `--stream-interval 10`",
    "vllm_api_servers": "with `--api-server-count 4`",
    "vllm_both": "with both",
    "drag_ray": "the endpoint",
}
PARTS = ("server", "proxy")
"""Processes between a client and an engine."""


def write_serving() -> str:
    """The endpoint beside vLLM's own server."""
    results = read_results("serve_speed")
    rows = [
        [
            text,
            f"{run['request_throughput']:.1f}",
            f"{run['output_throughput']:,.0f}",
            f"{run['median_ttft_ms']:,.0f} / {run['p99_ttft_ms']:,.0f} ms",
            f"{run['median_tpot_ms']:.1f} / {run['p99_tpot_ms']:.1f} ms",
            f"{run['median_event_gap_ms']:,.0f} ms",
        ]
        for text, run in ((text, results[name]) for name, text in _SERVERS.items())
    ]
    header = [
        "",
        "requests/s",
        "tokens/s",
        "time to the first token, median / p99",
        "time per further token, median / p99",
        "between events, median",
    ]
    return to_table(header, rows)


def write_rerank() -> str:
    """All windows of a list on one engine, beside an engine a window."""
    results = read_results("rerank_engine")
    of = f"{results['lists']} list of {results['candidates']} candidates in {results['windows_per_list']} windows"
    rows = [
        ["one engine for all windows", f"{results['one_engine_s']:.1f} s"],
        ["one engine for each window", f"{results['an_engine_a_window_s']:.1f} s"],
        ["start of one engine", f"{results['engine_start_s']:.1f} s"],
    ]
    return to_table([of, "seconds"], rows)


def write_serving_waves() -> str:
    """Clients that ask again at once beside requests that come at random."""
    results = read_results("serve_waves")
    options, at_random = results["options"], results["open"]
    rows = [
        [
            text,
            f"{results[name]['request_throughput']:.1f}",
            f"{results[name]['median_ttft_ms']:.0f} / {results[name]['p99_ttft_ms']:,.0f} ms",
            f"{at_random[name]['median_ttft_ms']:.0f} / {at_random[name]['p99_ttft_ms']:.0f} ms",
        ]
        for name, text in (("vllm", "`vllm serve`"), ("drag_ray", "the endpoint"))
    ]
    header = [
        "",
        f"{options['concurrency']} closed-loop clients: requests/s",
        "time to the first token, median / p99",
        f"{at_random['requests_per_s']:.0f} requests/s at random times, lengths varied by half: time to the first token",
    ]
    text = f"""Two cores shared with the clients and other work, a simulated model of {options["step_ms"]:.0f} ms a step,
        {options["input_tokens"]} prompt and {options["output_tokens"]} reply tokens (`benchmarks/bench_serve.py --open-load`,
        `benchmarks/results/serve_waves.json`)."""
    return f"{to_table(header, rows)}\n\n{to_paragraph(text)}"


def write_serving_parts() -> str:
    """CPU time of a streamed chat in each process between client and engine."""
    results = read_results("serve_parts")
    options = results["options"]
    names = {
        "vllm": "`vllm serve`",
        "drag_ray_by_actors": "the endpoint, through Ray actor calls",
        "drag_ray": "the endpoint",
    }
    rows = [
        [
            text,
            *(
                f"{results[name]['cpu'][part]['cpu_ms_per_request']:.1f} ms" if part in results[name]["cpu"] else ""
                for part in PARTS
            ),
            f"{results[name]['request_throughput']:.1f}",
            f"{results[name]['median_ttft_ms']:,.0f} ms",
        ]
        for name, text in names.items()
    ]
    table = to_table(["", "CPU a request: server", "proxy", "requests/s", "time to the first token, median"], rows)
    words = to_paragraph(
        f"""Two cores shared with the clients and other work, a simulated model of {options["step_ms"]:.0f} ms a step,
        {options["concurrency"]} clients, {options["output_tokens"]} tokens a reply (`benchmarks/bench_serve.py --actors`,
        `benchmarks/results/serve_parts.json`). A process uses at most one core: a thousand milliseconds of CPU a second."""
    )
    return f"{table}\n\n{words}"


def write_serving_ingress() -> str:
    """The endpoint's own relay beside Ray Serve's HAProxy ingress."""
    results = read_results("serve_ingress")
    options, ways = results["options"], results["ways"]

    def write_range(way: str, kind: str, read: Callable[[dict[str, Any]], float], digits: int) -> str:
        values = sorted(read(seen[kind]) for seen in ways[way])
        return f"{median(values):,.{digits}f} ({values[0]:,.{digits}f} to {values[-1]:,.{digits}f})"

    def sum_cpu(seen: dict[str, Any]) -> float:
        parts = seen["cpu"].items()
        return sum(cpu["cpu_ms_per_request"] for part, cpu in parts if part not in ("engine", "client", "controller"))

    rows = [
        [
            text,
            write_range(way, "streamed", lambda seen: seen["requests_per_s"], 1),
            write_range(way, "streamed", lambda seen: seen["median_first_ms"], 0),
            write_range(way, "streamed", sum_cpu, 1),
            write_range(way, "whole", lambda seen: seen["requests_per_s"], 0),
            write_range(way, "whole", sum_cpu, 1),
        ]
        for way, text in _INGRESS.items()
    ]
    header = ["", "streamed: requests/s", "first token, median ms", "CPU ms a request", "whole: requests/s", "CPU ms a request"]
    loads = [seen["machine_load"] for of_way in ways.values() for seen in of_way]
    words = to_paragraph(
        f"""Medians of {len(ways["relay"])} rounds in turns (lowest to highest) of {options["seconds"]:.0f} s for each kind of
        request, on two cores shared with the clients (load {min(loads):.1f} to {max(loads):.1f}); a simulated model of
        {options["step_ms"]:.0f} ms a step, {options["concurrency"]} clients, {options["output_tokens"]} tokens a streamed reply
        and {options["whole_tokens"]} a whole one; CPU of replica and proxies (`benchmarks/bench_serve_ingress.py`,
        `benchmarks/results/serve_ingress.json`)."""
    )
    return f"{to_table(header, rows)}\n\n{words}"
