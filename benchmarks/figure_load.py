"""Tables of what becomes of a collection and an endpoint under load, and of their memory."""

from typing import Any

from figure_cells import read_results, to_table


def write_collect_load() -> str:
    """A collection of many rollouts at once."""
    results = read_results("collect_load")
    kept = [
        ["rollouts, at once", f"{results['rollouts']:,}, {results['at_once']:,}"],
        [
            "lost, failed, kept twice, of another question",
            _list_counts(results, "lost", "failed", "kept_twice", "of_another_question"),
        ],
        ["seconds", f"{results['seconds']:,.0f}"],
    ]
    return to_table(["", ""], kept + _describe_memory(results["memory"]))


def _list_counts(results: dict[str, Any], *names: str) -> str:
    return ", ".join(str(results[name]) for name in names)


def _describe_memory(memory: dict[str, Any]) -> list[list[str]]:
    growth = memory["last_mib"] / memory["first_mib"] - 1
    return [
        [
            f"memory of all processes, {memory['from_s']:,} s to {memory['to_s']:,} s",
            f"{memory['first_mib']:,} to {memory['last_mib']:,} MiB ({100 * growth:+.1f} %)",
        ],
        ["its slope", f"{memory['slope_mib_per_minute']:+.1f} MiB a minute"],
        ["open files at both ends", ", ".join(f"{number:,}" for number in memory["open_files"])],
    ]
