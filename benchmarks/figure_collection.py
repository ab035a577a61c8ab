"""Tables and sentences of how fast a collection is, on one GPU and on several, and of its engines."""

from typing import Any

from figure_cells import name_gpu, percent, read_record, read_results, short, to_paragraph, to_table


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


def write_image_cores() -> str:
    """What page images cost on few CPU cores."""
    cores = read_results("collect_images")["ours"]["cores"]
    numbers, last = list(cores), [f"{found['cold']['requests_per_s']:.2f}" for found in cores.values()]
    return to_paragraph(
        f"""New pages on {", ".join(numbers[:-1])} and {numbers[-1]} CPU cores: {", ".join(last[:-1])} and {last[-1]} requests/s
        ({cores["1"]["cold"]["requests"]} requests each); pages seen before on one core:
        {cores["1"]["warm"]["requests_per_s"]:.2f}. Four cores a GPU are enough for most of the speed."""
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


def write_collection_images_terms() -> str:
    """What the table of page images is of."""
    options = read_results("collect_images")["options"]
    return to_paragraph(
        f"""With three page images of 960 x 1280 pixels a prompt and replies of {options["reply_tokens"]} tokens, Qwen3-VL-8B
        shapes (`collect_images.json`):"""
    )


def write_collection_scaling_terms() -> str:
    """What the table of several GPUs is of."""
    options = read_results("collect_scaling_text")["options"]
    return to_paragraph(
        f"""Over the GPUs of one host (Qwen3-VL-8B shapes, {options["rollouts"]:,} rollouts of text a GPU,
        {options["cores_per_gpu"]} cores a GPU, `collect_scaling_text.json`):"""
    )


def write_collection_scaling_images_terms() -> str:
    """What the table of several GPUs and page images is of."""
    rollouts = read_results("collect_scaling_images")["gpus"]["1"]["rollouts"]
    return to_paragraph(
        f"""With up to six page images a request, {rollouts:,} rollouts a GPU, 8 of each question
        (`collect_scaling_images.json`):"""
    )


def write_collection_scaling_shorter() -> str:
    """What becomes of the efficiency where the end is a good part of the whole."""
    shorter = read_results("collect_scaling_images")["four_gpus_shorter"]
    runs, efficiency = shorter["gpus"], shorter["efficiency"]
    waits = [f"{100 * max(runs[gpus]['idle_share_of_engines']):.0f} % of {runs[gpus]['seconds']:.0f} s" for gpus in ("2", "4")]
    return to_paragraph(
        f"""A shorter run, {runs["1"]["rollouts"]} rollouts a GPU, reached {short(efficiency["2"])} on two GPUs and
        {short(efficiency["4"])} on four: the last rollout of an engine takes up to three replies, while engines that had shorter
        ones wait, and that was up to {waits[0]} and {waits[1]}."""
    )


def write_engines_sharing() -> str:
    """What several engines of a small model gain on one GPU, and how soon an engine that stays up writes again."""
    small, kept = read_results("collect_throughput_smollm2"), read_results("recipe_medquad_all_questions")
    gain = small["collect_two_engines_a_gpu"]["output_tokens_per_s"] / small["collect"]["output_tokens_per_s"]
    first, *later = kept["first_rollouts_after_s"].values()
    return to_paragraph(
        f"""On one {name_gpu(read_record("collect_throughput_smollm2"))} two engines of SmolLM2 collected {gain:.1f} times as
        fast as one
        (`benchmarks/results/collect_throughput_smollm2.json`). The first rollouts of a 1.5B model ended {first} s after a
        pipeline had begun to collect with it, and {min(later)} to {max(later)} s after each later stage had begun
        (`recipe_medquad_all_questions.json`)."""
    )
