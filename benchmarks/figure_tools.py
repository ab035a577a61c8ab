"""Tables and sentences of what tools cost a collection, and of what they add to search."""

from typing import Any

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


def write_evaluate_tools_terms() -> str:
    """What the table of success with tools and without is of."""
    record = read_record("evaluate_tools")
    results = record["results"]
    alone, tools = results["sides"]["alone"], results["sides"]["tools"]
    return to_paragraph(
        f"""{results["model"]} on {alone["questions"]:,} held-out questions of {results["set"]} on {describe_gpus(record)}
        (`bench_evaluate_tools.py`, `benchmarks/results/evaluate_tools.json`; untrained, greedy, up to {results["turns"]} turns):
        with {_list_tools(alone)} alone, and with {_list_tools(tools)}. A question is solved when a page of its evidence was seen,
        among those that a search shows or by `read_page`; each row counts what was solved within so many turns, pages or written
        tokens. 95 % intervals are over documents."""
    )


def write_evaluate_tools() -> str:
    """Success with tools and without, at equal turns, pages and tokens."""
    results = read_results("evaluate_tools")
    all_turns = f"in {results['turns']} turns"  # what is solved at all
    rows = [
        [_NAMES.get(name, name), *_write_difference(found)] for name, found in results["compared"].items() if name != all_turns
    ]
    return to_table(["solved", "search alone", "with tools", "difference in points"], rows)


def write_evaluate_tools_words() -> str:
    """What each side spends, and what its replies were."""
    results = read_results("evaluate_tools")
    sides = {"With search alone": results["sides"]["alone"], "with tools": results["sides"]["tools"]}
    spent = "; ".join(
        f"""{name} {side["searches"]:.2f} searches in {side["turns"]:.2f} turns, {side["pages"]:.1f} pages seen,
        {side["tokens_read"]:,.0f} tokens read and {side["tokens_written"]:,.0f} written, {percent(side["unreadable_replies"])} of
        the replies unreadable, {percent(side["answered"])} of the questions answered, {side["failed"]} rollouts failed"""
        for name, side in sides.items()
    )
    calls = [
        f"`{name}` {found['calls']:,} times ({found['errors']:,} failed, {_write_ms(found['mean_ms'])} on average)"
        for name, found in results["sides"]["tools"]["calls"].items()
    ]
    return to_paragraph(f"{spent}. It called {' and '.join(calls) or 'no tool'}. {_conclude(results['compared']['solved'])}")


_NAMES = {"solved": "at all", "cites": "cited in the answer", "in 1 turns": "in the first turn"}


def _conclude(solved: Any) -> str:
    low, high = solved["interval"]
    if low <= 0 <= high:
        return "So many questions do not tell whether it solves more with them."
    return f"It solves {'more' if low > 0 else 'fewer'} questions with them."


def _write_difference(found: Any) -> list[str]:
    difference, low, high = (f"{100 * value:+.1f}" for value in (found["difference"], *found["interval"]))
    return [percent(found["alone"]), percent(found["tools"]), f"{difference} [{low}, {high}]"]


def _list_tools(side: Any) -> str:
    *first, last = (f"`{name}`" for name in side["tools"])
    return f"{', '.join(first)} and {last}" if first else last


def _write_ms(value: float) -> str:
    return f"{value:.3g} ms" if value < 1000 else f"{value:,.0f} ms"
