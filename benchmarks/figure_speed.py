"""Tables of how fast it is: search, collection, training, serving."""

from typing import Any

from figure_cells import percent, read_results, short, to_paragraph, to_table


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


def write_collection() -> str:
    """A collection beside vLLM's own offline inference."""
    large, small = read_results("collect_throughput_qwen3_vl_8b"), read_results("collect_throughput_smollm2")

    def write_row(model: str, replies: str, collect: Any, offline: str, ratio: float) -> list[str]:
        counts = f"{collect['requests']:,} of {replies} tokens in {collect['rollouts']:,} rollouts"
        return [model, counts, f"{collect['output_tokens_per_s']:,.0f} tokens/s", offline, short(ratio)]

    def write_offline(results: Any) -> str:
        return f"{results['offline']['output_tokens_per_s']:,.0f} tokens/s"

    replies = f"up to {small['options']['reply_tokens']}"
    two = small["collect_two_engines_a_gpu"]
    rows = [
        write_row(
            "Qwen3-VL-8B shapes, random weights, text",
            f"{large['options']['reply_tokens']}",
            large["collect"],
            write_offline(large),
            large["collect_over_offline"],
        ),
        write_row(
            "SmolLM2-135M, real replies, one engine",
            replies,
            small["collect"],
            write_offline(small),
            small["collect_over_offline"],
        ),
        write_row(
            "SmolLM2-135M, two engines on the GPU", replies, two, "the same", small["collect_two_engines_a_gpu_over_offline"]
        ),
    ]
    return to_table(["model", "replies", "collection", "vLLM offline", "ratio"], rows)


def write_collection_images() -> str:
    """Replies to prompts with page images."""
    results = read_results("collect_images")
    text = results["ours"]["text"]["requests_per_s"]
    speeds = {
        "vLLM's `LLM.chat`": results["plain"]["requests_per_s"],
        "collection's engine, every page new": results["ours"]["cold"]["requests_per_s"],
        "collection's engine, pages seen before": results["ours"]["warm"]["requests_per_s"],
    }
    rows = [[name, f"{speed:.2f}", short(speed / text, 2)] for name, speed in speeds.items()]
    return to_table(
        ["", "requests/s", "of text alone"], [*rows, ["the same engine, text prompts of as many tokens", f"{text:.2f}", "1"]]
    )


def write_collection_scaling() -> str:
    """A collection over the GPUs of one host."""
    results = read_results("collect_scaling_text")
    single = results["gpus"]["1"]
    earlier = results["before_engines_took_chunks_as_they_have_room"]["gpus"]["1"]  # of the version of the last row
    found = [(count, count, results["gpus"][count], single) for count in results["gpus"]]
    found += [
        ("2 over two GPUs each (tensor parallel)", "4", results["tensor_parallel_2_on_4_gpus"], single),
        ("1 over two GPUs", "2", results["tensor_parallel_2_on_2_gpus"], earlier),
    ]
    rows = [
        [
            text,
            gpus,
            write_speed(run),
            short(run["output_tokens_per_s"] / one["output_tokens_per_s"] / int(gpus)),
            write_idle(run),
        ]
        for text, gpus, run, one in found
    ]
    return to_table(["engines", "GPUs", "output tokens/s", "efficiency", "an engine was idle for at most"], rows)


def write_collection_scaling_images() -> str:
    """The same with page images."""
    results = read_results("collect_scaling_images")
    rows = [
        [count, count, f"{run['requests']:,}", write_speed(run), short(results["efficiency"][count]), write_idle(run)]
        for count, run in results["gpus"].items()
    ]
    return to_table(["engines", "GPUs", "requests", "output tokens/s", "efficiency", "an engine was idle for at most"], rows)


def write_speed(run: Any) -> str:
    """Tokens a second of a run."""
    return f"{run['output_tokens_per_s']:,.0f}"


def write_idle(run: Any) -> str:
    """The longest share of its time that an engine had nothing to do."""
    return f"{percent(max(run['idle_share_of_engines']))} of {run['seconds']:.0f} s"


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
        for text, run in (("`vllm serve`", results["vllm"]), ("the endpoint", results["drag_ray"]))
    ]
    header = ["", "requests/s", "tokens/s", "time to the first token, median / p99", "a further token, median / p99"]
    return to_table(header, rows)


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
        {search["memory_after_queries_mb"]} MB of memory and {search["p50_ms"]:.1f} ms a query (`search_scale.json`)."""
    )


def write_collection_words() -> str:
    """What a collection costs beside the model, and an engine's extras."""
    overhead, small = read_results("collect_overhead"), read_results("collect_throughput_smollm2")["earliest"]
    options, ours, offline = overhead["options"], overhead["collect"], overhead["offline"]
    return to_paragraph(
        f"""What a collection costs beside the model can be measured without a GPU (`collect_overhead.json`): with a model whose
        step takes {options["step_ms"]:.0f} ms and {options["token_us"]:.0f} µs a token, on two CPU cores,
        {ours["rollouts"]:,} rollouts write {ours["output_tokens_per_s"]:,.0f} tokens/s, and
        {offline["output_tokens_per_s"]:,.0f} offline. For a small model the engine's extras cost more than the rollouts: offline,
        SmolLM2 wrote {small["offline"]["output_tokens_per_s"]:,.0f} tokens/s with both,
        {small["offline_without_seeds"]["output_tokens_per_s"]:,.0f} without seeds (`--no-engine.seeds`) and
        {small["offline_without_seeds_and_logprobs"]["output_tokens_per_s"]:,.0f} also without log-probabilities
        (`--no-engine.logprobs`), in an earlier version (`collect_throughput_smollm2.json`)."""
    )


def write_image_cores() -> str:
    """What page images cost on few CPU cores."""
    cores = read_results("collect_images")["ours"]["cores"]
    numbers, last = list(cores), [f"{found['cold']['requests_per_s']:.2f}" for found in cores.values()]
    return to_paragraph(
        f"""New pages on {", ".join(numbers[:-1])} and {numbers[-1]} CPU cores: {", ".join(last[:-1])} and {last[-1]} requests/s
        ({cores["1"]["cold"]["requests"]} requests each); pages seen before on one core:
        {cores["1"]["warm"]["requests_per_s"]:.2f}. Four cores a GPU are enough for most of the speed."""
    )


def write_scaling_words() -> str:
    """What handing out everything at the start cost."""
    before = read_results("collect_scaling_text")["before_engines_took_chunks_as_they_have_room"]
    idle = max(share for run in before["gpus"].values() for share in run["idle_share_of_engines"])
    four = read_results("collect_scaling_text")["gpus"]["4"]
    ready = four["engines_ready_after_s"]
    return to_paragraph(
        f"""Engines take the next questions when they have room for them. When everything was handed out at the start instead, in
        chunks of 32 rollouts where it is 8 now, two GPUs reached {short(before["efficiency"]["2"])} and four
        {short(before["efficiency"]["4"])}, and an engine was idle for up to {100 * idle:.0f} % of the time, at the end. The
        efficiency of the last row is that beside one GPU of its version. Efficiency counts from the moment when all engines have
        loaded the model, which they did within {max(ready) - min(ready):.1f} s of each other. An engine a GPU beats one over two
        GPUs wherever the model fits into one. Driver and raylet take
        {short(four["driver_cpu_cores"] + four["raylet_cpu_cores"], 2)} of a core, the object store
        {four["object_store_peak_mb"]:.0f} MB. Eight GPUs were not measured."""
    )


def write_engine_killed() -> str:
    """How the endpoint stands beside vLLM's server, and what is lost when an engine is killed under load."""
    results = read_results("serve_speed")
    kill, clients = results["kill"], results["options"]["concurrency"]
    return to_paragraph(
        f"""That was {short(results["throughput_of_vllm"], 2)} of vLLM's throughput, where we want .97: each token of each stream
        was a message of its own to Ray Serve's proxy, which is one process. When the engine is killed under this load, requests
        are answered again after {kill["answers_again_after_s"]:.0f} s, which is how long a new engine takes to start;
        {kill["requests"]["InternalServerError 500"]:,} requests failed until then ({clients} clients that tried again twice a
        second), and {kill["requests"]["APITimeoutError"]:,} ran into their own time limit of a minute."""
    )


def write_stream_pacing() -> str:
    """What one message for several tokens saves."""
    results = read_results("serve_streams")
    options, plain, paced = results["options"], results["plain"], results["paced"]
    return to_paragraph(
        f"""With {options["streams"]} streams of {options["output_tokens"]} tokens at once, from a model of a set step time of
        {options["step_ms"]:.0f} ms on two cores that other work shared, a request came to {paced["messages_per_request"]:.0f}
        messages instead of {plain["messages_per_request"]:.0f}, and to {paced["cpu_ms_per_request"]:.0f} ms of CPU time in the
        replica's application instead of {plain["cpu_ms_per_request"]:.0f}."""
    )
