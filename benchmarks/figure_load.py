"""Figures of load: collections and endpoints, their memory, damaged files, faults and hostile queries."""

from typing import Any

from figure_cells import read_results, to_table


def write_collect_load() -> str:
    """A collection of many rollouts at once."""
    results = read_results("collect_load")
    kept = [
        ["rollouts, concurrent", f"{results['rollouts']:,}, {results['at_once']:,}"],
        [
            "lost, failed, duplicated, of another question",
            _list_counts(results, "lost", "failed", "kept_twice", "of_another_question"),
        ],
        ["seconds", f"{results['seconds']:,.0f}"],
    ]
    return to_table(["", ""], kept + _describe_memory(results["memory"]) + _list_slopes(results["memory"]))


def write_serve_load() -> str:
    """An endpoint that many clients ask."""
    results = read_results("serve_load")
    requests, health = results["requests"], results["health"]
    lost = sum(count for outcome, count in requests.items() if outcome.startswith("lost"))
    kept = [
        ["clients, seconds", f"{results['options']['clients']:,}, {results['options']['seconds']:,}"],
        ["requests", f"{requests['sent']:,}"],
        ["answered correctly", f"{requests['answered']:,}"],
        ["refused with `Retry-After`: 429, 503", f"{requests.get('refused: 429', 0):,}, {requests.get('refused: 503', 0):,}"],
        [
            "lost, unaccounted for, of another question",
            f"{lost}, {results['unaccounted']}, {requests.get('of another question', 0)}",
        ],
        ["`/health`: answers, of them 200, the slowest", _describe_health(health)],
    ]
    return to_table(["", ""], kept + _describe_memory(results["memory"]) + _list_slopes(results["memory"]))


def _describe_health(health: dict[str, Any]) -> str:
    statuses = health["statuses"]
    return f"{sum(statuses.values()):,}, {statuses.get('200', 0):,}, {health['seconds']['max']:.1f} s"


def _list_slopes(memory: dict[str, Any]) -> list[list[str]]:
    slopes = ", ".join(f"`{name}` {slope:+.1f}" for name, slope in memory["slopes_of_processes"].items())
    return [["processes that grow by more than half a MiB a minute", slopes or "none"]]


def write_reader_fuzz() -> str:
    """Outcomes of damaged files, by the reader."""
    results = read_results("fuzz_readers")
    return to_table(
        ["damaged files", "kinds", "refused or set aside", "ended or blocked their process", "failures"],
        [
            [
                f"{results['inputs']:,}",
                str(len(results["inputs_by_kind"])),
                f"{results['refused']:,}",
                str(sum(results["contained"].values())),
                str(sum(results["failures"].values())),
            ]
        ],
    )


def write_fault_injection() -> str:
    """Counts of injected faults by their target, and of answers that were not as they should be."""
    results = read_results("inject_faults")
    rows = [
        [area, f"{counts['accesses']:,}", str(counts["kinds"]), f"{counts['faults']:,}"]
        for area, counts in results["areas"].items()
    ]
    failed = f"{results['faults']:,}; failed checks: {len(results['failures'])}"
    return to_table(["files of", "accesses", "kinds of faults", "faults"], [*rows, ["all", "", "", failed]])


def write_kills() -> str:
    """The kills of each stage, and whether its result differed."""
    rows = [
        [stage, *(str(found[name]) for name in ("kills", "moves", "copies", "ends")), "none" if found["passed"] else "some"]
        for stage, found in read_results("kill_stages").items()
    ]
    return to_table(["stage", "kills", "moves before a start", "copies", "results compared", "differences"], rows)


def _list_counts(results: dict[str, Any], *names: str) -> str:
    return ", ".join(str(results[name]) for name in names)


def _describe_memory(memory: dict[str, Any]) -> list[list[str]]:
    growth = memory["last_mib"] / memory["first_mib"] - 1
    return [
        [
            f"memory of all processes, {memory['from_s']:,} s to {memory['to_s']:,} s",
            f"{memory['first_mib']:,} to {memory['last_mib']:,} MiB ({100 * growth:+.1f} %)",
        ],
        ["slope of the memory", f"{memory['slope_mib_per_minute']:+.1f} MiB a minute"],
        ["open files at start and end", ", ".join(f"{number:,}" for number in memory["open_files"])],
    ]
