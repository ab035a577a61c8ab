"""Tables and sentences of what tools cost a collection."""

from figure_cells import describe_gpus, percent, read_record, read_results, to_paragraph, to_table


def write_collect_tools_terms() -> str:
    """What the table of a collection with tools is of."""
    record = read_record("collect_tools")
    options = record["results"]["options"]
    return to_paragraph(
        f"""Qwen3-VL-8B shapes with random weights on {describe_gpus(record)} (`bench_collect_tools.py`,
        `benchmarks/results/collect_tools.json`): {options["concurrency"]} rollouts at once over {options["pages"]:,} pages with
        pictures of 960 x 1280 pixels. The model writes as many tokens as a call has, and a call that fits what was shown stands
        in their place, so that searches and tools work on real pictures, which are in the prompts that follow."""
    )


def write_collect_tools() -> str:
    """The time of each tool in that collection."""
    rows = [
        [f"`{name}`", f"{found['calls']:,}", f"{found['errors']:,}", _write_ms(found["mean_ms"]), _write_ms(found["p95_ms"])]
        for name, found in read_results("collect_tools")["tools"].items()
    ]
    return to_table(["tool", "calls", "failed", "mean", "95th percentile"], rows)


def write_collect_tools_words() -> str:
    """How many rollouts and searches a second that is, and what their time goes to."""
    results = read_results("collect_tools")
    whole, spent = results["whole"], results["share_of_rollout_time"]
    searches = results["tools"]["search"]["calls"]
    return to_paragraph(
        f"""{results["rollouts"]:,} rollouts ({results["failed"]:,} failed) of {results["turns"] / results["rollouts"]:.1f} turns
        took {whole["seconds"]:,.0f} s: {results["rollouts"] / whole["seconds"]:.2f} rollouts/s, {searches / whole["seconds"]:.2f}
        searches/s, {whole["output_tokens_per_s"]:,.0f} tokens/s, from the first request to the last reply. While rollouts were
        begun ({results["seconds"]:.0f} s) the engine answered {results["requests_per_s"]:.2f} requests/s and had
        {results["requests_under_way"]:.0f} under way. Of the rollouts' time {percent(spent["engine"])} went to the engine,
        {percent(spent["search"])} to searches, {percent(spent["tools"])} to the other tools and {percent(spent["rest"])} to
        everything else."""
    )


def _write_ms(value: float) -> str:
    return f"{value:.3g} ms" if value < 1000 else f"{value:,.0f} ms"
