"""Tables of what tools cost a collection, and of what they add to search."""

from typing import Any

from figure_cells import percent, read_results, to_table


def write_collect_tools() -> str:
    """The time of each tool in that collection."""
    rows = [
        [f"`{name}`", f"{found['calls']:,}", f"{found['errors']:,}", _write_ms(found["mean_ms"]), _write_ms(found["p95_ms"])]
        for name, found in read_results("collect_tools")["tools"].items()
    ]
    return to_table(["tool", "calls", "failed", "mean", "95th percentile"], rows)


def write_evaluate_tools() -> str:
    """Success with tools and without, at equal turns, pages and tokens."""
    results = read_results("evaluate_tools")
    all_turns = f"in {results['turns']} turns"  # what is solved at all
    rows = [
        [_NAMES.get(name, name), *_write_difference(found)] for name, found in results["compared"].items() if name != all_turns
    ]
    return to_table(["solved", "search alone", "with tools", "difference in points"], rows)


_NAMES = {"solved": "at all", "cites": "cited in the answer", "in 1 turns": "in the first turn"}


def _write_difference(found: Any) -> list[str]:
    difference, low, high = (f"{100 * value:+.1f}" for value in (found["difference"], *found["interval"]))
    return [percent(found["alone"]), percent(found["tools"]), f"{difference} [{low}, {high}]"]


def _write_ms(value: float) -> str:
    return f"{value:.3g} ms" if value < 1000 else f"{value:,.0f} ms"
