"""Tables of how fast a collection is, on one GPU and on several, and of its engines."""

from typing import Any

from figure_cells import percent, read_results, short, to_table


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
    return to_table(["engines", "GPUs", "output tokens/s", "efficiency", "longest idle time of an engine"], rows)


def write_collection_scaling_images() -> str:
    """The same with page images."""
    results = read_results("collect_scaling_images")
    rows = [
        [count, count, f"{run['requests']:,}", write_speed(run), short(results["efficiency"][count]), write_idle(run)]
        for count, run in results["gpus"].items()
    ]
    return to_table(["engines", "GPUs", "requests", "output tokens/s", "efficiency", "longest idle time of an engine"], rows)


def write_speed(run: Any) -> str:
    """Tokens a second of a run."""
    return f"{run['output_tokens_per_s']:,.0f}"


def write_idle(run: Any) -> str:
    """The longest share of its time that an engine had nothing to do."""
    return f"{percent(max(run['idle_share_of_engines']))} of {run['seconds']:.0f} s"
