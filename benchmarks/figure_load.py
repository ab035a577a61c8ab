"""What becomes of a collection and an endpoint under load, of their memory, of damaged files, faults and hostile queries."""

from typing import Any

from figure_cells import read_results, to_paragraph, to_table


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
    return to_table(["", ""], kept + _describe_memory(results["memory"]) + _list_slopes(results["memory"]))


def write_serve_load() -> str:
    """An endpoint that many clients ask."""
    results = read_results("serve_load")
    requests, health = results["requests"], results["health"]
    lost = sum(count for outcome, count in requests.items() if outcome.startswith("lost"))
    kept = [
        ["clients, seconds", f"{results['options']['clients']:,}, {results['options']['seconds']:,}"],
        ["requests", f"{requests['sent']:,}"],
        ["answered, each with what it asked for", f"{requests['answered']:,}"],
        ["told to come back: 429, 503", f"{requests.get('refused: 429', 0):,}, {requests.get('refused: 503', 0):,}"],
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
    return [["kinds of processes above half a MiB a minute", slopes or "none"]]


def write_reader_fuzz() -> str:
    """What became of damaged files, by the reader."""
    results = read_results("fuzz_readers")
    return to_table(
        ["damaged files", "kinds", "refused or set aside", "ended or held up their process", "failures"],
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


def write_query_fuzz() -> str:
    """What became of hostile queries."""
    results = read_results("fuzz_queries")
    return to_paragraph(
        f"""Of {results["queries"]:,} hostile queries, read in each of the ways that there are,
        {sum(results["failures"].values())} raised an error, panicked or ended their process; the dearest took
        {results["slowest_cpu_ms"]:.0f} ms of CPU time (`benchmarks/results/fuzz_queries.json`)."""
    )


def write_hostile_queries() -> str:
    """What queries take that are made to be dear."""
    results = read_results("hostile_queries")
    queries = results["queries"].values()
    return to_paragraph(
        f"""On {results["pages"]:,} pages each of {len(queries)} queries that are made to be dear, the shortest of them
        {min(query["chars"] for query in queries)} characters of patterns, takes at most
        {max(query["cpu_ms"] for query in queries):.0f} ms of CPU time, where `search.max_query_ms` is {results["max_query_ms"]}.
        {sum(query["is_partial"] for query in queries)} of the {len(queries)} answers say that something was left out
        (`benchmarks/results/hostile_queries.json`)."""
    )


def write_fault_injection() -> str:
    """How many faults were injected, by what they hit, and what was not answered as it should."""
    results = read_results("inject_faults")
    rows = [
        [area, f"{counts['accesses']:,}", str(counts["kinds"]), f"{counts['faults']:,}"]
        for area, counts in results["areas"].items()
    ]
    failed = f"{results['faults']:,}; tests that found fault with an answer: {len(results['failures'])}"
    return to_table(["files of", "accesses", "kinds of faults", "faults"], [*rows, ["all", "", "", failed]])


def write_kills() -> str:
    """The kills of each stage, and whether its result differed."""
    rows = [
        [stage, *(str(found[name]) for name in ("kills", "moves", "copies", "ends")), "none" if found["passed"] else "some"]
        for stage, found in read_results("kill_stages").items()
    ]
    return to_table(["stage", "kills", "moves before a start", "copies", "ends that were compared", "differences"], rows)


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


def write_collect_load_terms() -> str:
    """What the table of a large collection is of."""
    options = read_results("collect_load")["options"]
    return to_paragraph(
        f"""A collection of many rollouts at once on a scripted engine whose replies take {options["delay_s"]:.0f} s on average
        (`benchmarks/bench_load.py --part collect`, `benchmarks/results/collect_load.json`, 2 cores of an AMD EPYC that had other
        work). Each rollout has to find the page of its own question, to answer with its word and to be kept once. Memory is
        that of the driver, the workers and Ray's own processes; what they share counts in each."""
    )


def write_collect_load_words() -> str:
    """What the memory of a large collection does, and did with smaller chunks."""
    now, earlier = read_results("collect_load"), read_results("collect_load_earlier")
    return to_paragraph(
        f"""Memory rises for some minutes, while the threads fill in which Ray Data's actor holds chunks, one each, and is flat
        then. An engine with many slots is given more rollouts at once (`rollout.chunk_rollouts`), so that it holds fewer. With
        eight at a time a collection of {earlier["rollouts"]:,} came to {earlier["memory"]["peak_mib"]:,} MiB in place of
        {now["memory"]["peak_mib"]:,}, and went on to grow by {earlier["memory"]["slope_mib_per_minute"]:.0f} MiB a minute, in
        Ray's GCS above all (`collect_load_earlier.json`)."""
    )


def write_serve_load_terms() -> str:
    """What the table of an endpoint under load is of."""
    options = read_results("serve_load")["options"]
    return to_paragraph(
        f"""An endpoint with the embedded model that {options["clients"]} clients ask for {options["seconds"] / 60:.0f} minutes,
        in turns in a chat, in a chat that is streamed and with a search (`--part serve --warm-up 0.3334`,
        `benchmarks/results/serve_load.json`, the same two cores, of which other work had what this one left). That is far more
        than it can do: it writes {options["max_num_seqs"]} replies at a time, is given {4 * options["max_num_seqs"]} and lets
        {options["queued"]} wait, for {options["max_wait_s"]} s (`serve.max_wait_s`). A client that is told to come back does. A
        request would be lost that has no answer within {options["limit_s"]} s, fails, or is refused without a time to come back
        after."""
    )


def write_serve_load_words() -> str:
    """How the endpoint's memory goes, and what made it grow before."""
    memory, earlier = read_results("serve_load")["memory"], read_results("serve_load_earlier")["memory"]
    replica = earlier["slopes_of_processes"]["ray::ServeReplica:drag_ray:openai"]
    slope, slope_before = memory["slope_mib_per_minute"], earlier["slope_mib_per_minute"]
    return to_paragraph(
        f"""Memory rises until caches and allocators are full, which takes ten minutes, and is flat then ({slope:+.1f} MiB a
        minute). An earlier run rose by {slope_before:.0f} MiB a minute (`serve_load_earlier.json`), of which {replica:.0f} were
        Ray Serve's log, which a replica kept in its memory (`drag_ray/serve/replica.py`)."""
    )
