"""Tables of how fast it is: search, process and format, training, serving."""

from typing import Any

from figure_cells import describe_gpus, name_gpu, read_record, read_results, to_paragraph, to_table


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


def write_search_ratios() -> str:
    """How many times as fast as others, batches, and a million pages."""
    results, scale = read_results("search_speed"), read_results("search_scale")
    whoosh, batch = results["times_whoosh"]["drag_ray"], results["batch"]
    return to_paragraph(
        f"""That is {whoosh["median"]:.0f} times Whoosh (median of {results["rounds"]} rounds, {whoosh["min"]:.0f} to
        {whoosh["max"]:.0f}) and {results["times_bm25s"]["drag_ray"]["median"]:.2f} times bm25s. `search_batch` on
        {batch["cores"]}
        cores answers {batch["batch_queries_per_s"]:,.0f} queries a second, {batch["speedup"]:.1f} times as many as one by one. At
        {scale["pages"]:,} pages (`search_scale.json`): built in {scale["build"]["wall_s"]:.0f} s with
        {scale["build"]["peak_memory_mb"] / 1000:.1f} GB, opened in {scale["search"]["open_s"]:.1f} s, p50
        {scale["search"]["p50_ms"]:.2f} ms, p99 {scale["search"]["p99_ms"]:.1f} ms,
        {scale["search"]["memory_after_queries_mb"]} MB
        resident."""
    )


def write_process_format() -> str:
    """Process and format of many trajectories."""
    results = read_results("process_format")
    tenth, million = results["stages"]
    return to_paragraph(
        f"""{million["trajectories"]:,} trajectories are processed and formatted in {million["seconds"]:.0f} s and
        {million["peak_memory_gib"]:.1f} GiB on {results["cpus"]} cores (`process_format.json`),
        {million["times_as_fast_as_plain"]:.1f} times as fast as plain Python doing the same steps; {tenth["trajectories"]:,} take
        {tenth["seconds"]:.0f} s and {tenth["peak_memory_gib"]:.1f} GiB. To read the trajectories and write the
        finished rows, without
        any step in between, takes Polars {tenth["reading_and_writing_cpu_us_per_trajectory"]:.0f} µs of CPU a trajectory, and a
        twentieth of plain Python's time is {results["plain"]["us_per_trajectory"] / 20:.0f} µs, so it cannot be 20 times."""
    )


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


_SERVERS = {
    "vllm": "`vllm serve`",
    "vllm_stream_interval": "with `--stream-interval 10`",
    "vllm_api_servers": "with `--api-server-count 4`",
    "vllm_both": "with both",
    "drag_ray": "the endpoint",
}
PARTS = ("server", "proxy")
"""Processes between a client and an engine."""
_WANTED_ABOVE_MS = 10
"""to the first token, above vLLM's own server"""


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
        ]
        for text, run in ((text, results[name]) for name, text in _SERVERS.items())
    ]
    header = ["", "requests/s", "tokens/s", "time to the first token, median / p99", "a further token, median / p99"]
    return to_table(header, rows)


def _compare(results: dict[str, Any], name: str) -> str:
    ratio = results["drag_ray"]["request_throughput"] / results[name]["request_throughput"]
    return f"{ratio:.2f}".lstrip("0")


def write_rerank() -> str:
    """All windows of a list on one engine, beside an engine a window."""
    results = read_results("rerank_engine")
    of = f"{results['lists']} list of {results['candidates']} candidates in {results['windows_per_list']} windows"
    rows = [
        ["one engine for all windows", f"{results['one_engine_s']:.1f} s"],
        ["an engine a window", f"{results['an_engine_a_window_s']:.1f} s"],
        ["of it the start of an engine", f"{results['engine_start_s']:.1f} s"],
    ]
    return to_table([of, "seconds"], rows)


def write_search_scale() -> str:
    """What a million pages take."""
    results = read_results("search_scale")
    build, search = results["build"], results["search"]
    return to_paragraph(
        f"""{results["pages"]:,} pages are {build["index_mb"] / 1000:.1f} GB, take {build["wall_s"]:.0f} s to build on two cores,
        {search["memory_after_queries_mb"]} MB of memory and {search["p50_ms"]:.1f} ms a query (`search_scale.json`). Ten times as
        many would be {10 * build["index_mb"] / 1000:.0f} GB on the shared disk and in the page cache of each node."""
    )


def write_engine_killed() -> str:
    """How the endpoint stands beside vLLM's server, and what is lost when an engine is killed under load."""
    results = read_results("serve_speed")
    killed, further = read_record("serve_speed_kill"), results["options"]["output_tokens"] - 1
    kill, options = killed["results"]["kill"], killed["results"]["options"]
    whole = {
        name: (results[name]["median_ttft_ms"] + further * results[name]["median_tpot_ms"]) / 1000
        for name in ("vllm", "drag_ray")
    }
    ours, best = results["drag_ray"], results["vllm_both"]
    above_ms = ours["median_ttft_ms"] - best["median_ttft_ms"]
    return to_paragraph(
        f"""That is {results["throughput_of_vllm"]:.2f} times the throughput of vLLM's server as it starts by default: one event
        a token, made by one process that was as busy as a process can be ({results["vllm"]["cpu"]["server"]["peak_cores"]:.2f}
        cores at its peak), where an event of the endpoint holds several tokens. Beside `--stream-interval 10` and
        `--api-server-count 4` it is {_compare(results, "vllm_stream_interval")} and {_compare(results, "vllm_api_servers")}, and
        beside both {_compare(results, "vllm_both")}, with {_write_difference(above_ms)} at the median to the first token. We want
        .97 at least and {_WANTED_ABOVE_MS} ms more at most: **that is not met** beside a server that is told both. There four
        processes read requests and write events, and here the one that has the engine
        ({ours["cpu"]["server"]["peak_cores"]:.2f} cores at its peak). A whole reply takes {whole["drag_ray"]:.1f} s where it
        takes {whole["vllm"]:.1f} s with vLLM's server as it starts (medians added); where a reply ends sooner its client's next
        request comes sooner too. {_write_open_load(results)} When an engine is killed
        under such a load
        ({options["model"]}, {options["concurrency"]} clients, one {name_gpu(killed)}), requests are answered again after
        {kill["answers_again_after_s"]:.0f} s, which is how long a new engine takes to start; until then clients that tried again
        twice a second were told so {kill["requests"]["InternalServerError 503"]:,} times (503), and
        none ran into a time limit of its own."""
    )


def _write_open_load(results: dict[str, Any]) -> str:
    """Of requests that come at random; empty where they were not measured."""
    if "open" not in results:
        return ""
    found = results["open"]
    return (
        f"Of requests that come at random, {found['requests_per_s']:.0f} a second whatever was answered, with lengths that vary "
        f"by half, the endpoint answers {found['drag_ray']['request_throughput']:.0f} a second and vLLM's server "
        f"{found['vllm']['request_throughput']:.0f}; the first token comes after {found['drag_ray']['median_ttft_ms']:,.0f} ms "
        f"at the median, {_write_difference(found['median_ttft_ms_above_vllm'])} than with vLLM's server."
    )


def _write_difference(above_ms: float) -> str:
    return f"{abs(above_ms):,.0f} ms {'more' if above_ms > 0 else 'less'}"


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
        f"{options['concurrency']} clients that ask again at once: requests/s",
        "time to the first token, median / p99",
        f"{at_random['requests_per_s']:.0f} requests/s at random, lengths from half to one and a half times: the same",
    ]
    text = f"""Two cores that other work shared, clients among it, a model of {options["step_ms"]:.0f} ms a step,
        {options["input_tokens"]} tokens in and {options["output_tokens"]} out (`benchmarks/bench_serve.py --open-load`,
        `benchmarks/results/serve_waves.json`)."""
    return f"{to_table(header, rows)}\n\n{to_paragraph(text)}"


def write_stream_pacing() -> str:
    """What one message for several tokens saves."""
    results = read_results("serve_streams")
    options, plain, paced = results["options"], results["plain"], results["paced"]
    return to_paragraph(
        f"""With {options["streams"]} streams of {options["output_tokens"]} tokens at once, from a model of a set step time of
        {options["step_ms"]:.0f} ms on two cores that other work shared, a request came to {paced["messages_per_request"]:.0f}
        messages with {paced["events_per_request"]:.0f} events instead of {plain["messages_per_request"]:.0f} with
        {plain["events_per_request"]:.0f}, and to {paced["cpu_ms_per_request"]:.1f} ms of CPU time in the replica's application
        instead of {plain["cpu_ms_per_request"]:.1f}. One stream alone comes to
        {results["paced_alone"]["messages_per_request"]:.0f} messages, one a token (`benchmarks/bench_serve_streams.py`,
        `benchmarks/results/serve_streams.json`)."""
    )


def write_preparation() -> str:
    """What it brings to make requests ready a few at a time."""
    results = read_results("serve_streams")
    options, together, in_turn = results["options"], results["together"], results["in_turn"]
    return to_paragraph(
        f"""With the same model and {options["clients"]} clients that ask again as soon as they have their
        {options["output_tokens"]} tokens, the first event came after {in_turn["median_first_event_ms"]:.0f} ms at the
        median instead of {together["median_first_event_ms"]:.0f} ms, and after {in_turn["p90_first_event_ms"]:.0f} ms in nine
        of ten instead of {together["p90_first_event_ms"]:.0f} ms, at {in_turn["requests_per_s"]:.0f} requests/s instead of
        {together["requests_per_s"]:.0f} (`serve_streams.json`)."""
    )


def write_search_speed_terms() -> str:
    """What the table of search engines is of."""
    results = read_results("search_speed")
    return to_paragraph(
        f"""Search on medquad's {results["pages"]:,} pages, one thread, top {results["top_k"]} with file, number and text of each
        page, engines in turns in one process (`benchmarks/results/search_speed.json`, 2 cores of an AMD EPYC; equal Hit@3):"""
    )


def write_finetune_terms() -> str:
    """What the table of training speed is of."""
    record = read_record("finetune_speed")
    images, reward = (record["results"][name] for name in ("2 workers, zero2", "2 workers, zero2, reward model"))
    return to_paragraph(
        f"""LoRA on Qwen3-VL-8B shapes, on {describe_gpus(record)} (`finetune_speed.json`). Page images: rows of three of
        960 x 1280 pixels
        ({images["tokens"] / images["rows"]:,.0f} tokens), two rows a GPU and step, gradient checkpointing. Reward model: eight
        pairs of texts of {reward["tokens"] / reward["rows"] / 2:.0f} tokens a GPU and step."""
    )


def write_serving_terms() -> str:
    """What the table of the endpoint is of."""
    record = read_record("serve_speed")
    options = record["results"]["options"]
    return to_paragraph(
        f"""Beside vLLM's own server, on {describe_gpus(record)} (vLLM {record["versions"]["vllm"]},
        {options["model"]}, {options["concurrency"]} clients,
        {options["requests"]:,} streamed chats of {options["input_tokens"]} tokens in and
        {options["output_tokens"]} out, the same engine options; `benchmarks/bench_serve.py --open-load .7`,
        `benchmarks/results/serve_speed.json`):"""
    )


def write_serving_parts() -> str:
    """What a streamed chat costs in each process between client and engine."""
    results = read_results("serve_parts")
    options = results["options"]
    names = {
        "vllm": "`vllm serve`",
        "drag_ray_by_actors": "the endpoint, by Ray's calls of actors",
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
        f"""Two cores that other work shared, clients among it, a model of a set step time of {options["step_ms"]:.0f} ms,
        {options["concurrency"]} clients, {options["output_tokens"]} tokens a reply (`benchmarks/bench_serve.py --actors`,
        `benchmarks/results/serve_parts.json`). A process does at most one core's work: a thousand milliseconds of these a
        second."""
    )
    return f"{table}\n\n{words}"
