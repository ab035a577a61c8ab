"""Tables of what was seen on clusters whose nodes are processes of one machine."""

from typing import Any

from figure_cells import read_record, read_results, to_table

_LOST_UNDER = {
    "index": "its documents are read again",
    "collect, evaluate": "its rollouts run again",
    "process, format": "its tasks run again",
    "finetune": "training steps continue",
    "serve": "the endpoint answers",
}
"""Stages, and what they have recovered by."""


def write_simulation() -> str:
    """Figures of a cluster of scripted engines; of a simulation that was stopped those that it had measured."""
    results = read_results("simulation")
    options, rows = results["options"], list[list[str]]()
    if start := results.get("starting"):
        rows.append(["first, half, all engines ready after", _write_seconds(start["first_after_s"], start["after_s"])])
    if part := results.get("collecting"):
        rows += _describe_collecting(part)
    if killed := results.get("killed", {}).get("noticed_after_s"):
        replaced = results["killed"]["engines_replaced_after_s"]
        rows.append(["engines of the node that is killed", str(results["killed"]["engines"])])
        rows.append(["the driver notices it, its engines are replaced after", f"{killed:.0f} s, {replaced['max']:.0f} s"])
    if kept := results.get("kept"):
        counts = [kept[name] for name in ("rollouts", "lost", "failed", "kept_twice", "of_another_question")]
        rows.append(
            ["rollouts; lost, failed, duplicated, of another question", f"{counts[0]:,}; {', '.join(map(str, counts[1:]))}"]
        )
    if silent := results.get("silent", {}).get("noticed_after_s"):
        rows.append(["the driver notices a node that stopped answering after", f"{silent:.0f} s"])
    machine = read_record("simulation")["machine"]
    place = f"on {machine['cores']} cores with {machine['memory_gib']:.0f} GiB, {options['chunk_rollouts']} rollouts a chunk"
    return to_table([f"{options['actors']} engines on {options['nodes']} nodes", place], rows)


def write_autoscaling() -> str:
    """Moments at which nodes and engines came and went."""
    results = read_results("autoscaling")
    rows = [[f"{moment['at_s']:.0f}", str(moment["nodes"]), str(moment["engines"])] for moment in results["moments"]]
    end = [f"{results['collected_after_s']:.0f}", "", f"all {results['kept']} rollouts are kept"]
    rows.insert(sum(moment["at_s"] <= results["collected_after_s"] for moment in results["moments"]), end)
    return to_table(["s", "worker nodes", "engines"], rows)


def write_lost_nodes() -> str:
    """Seconds until the work of a lost node was done again, stage by stage."""
    results = read_results("lost_nodes")
    stages = [stage for stage in _LOST_UNDER if stage in results]

    def list_cells(way: str, measure: str, unit: str) -> list[str]:
        measured = [results[stage].get(way, {}).get(measure) for stage in stages]
        return ["" if figure is None else f"{figure:.0f}{unit}" for figure in measured]

    rows = [
        [f"{what}: {seen}", *list_cells(way, measure, unit)]
        for way, what in (("lose", "processes killed"), ("cut_off", "network cut"))
        for measure, seen, unit in (("recovered_s", "recovered after", " s"), ("repeated", "repeated", ""))
    ]
    header = ["loss of a node", *(f"{stage}: {_LOST_UNDER[stage]}" for stage in stages)]
    tables = [to_table(header, [row for row in rows if any(row[1:])])]
    if others := results.get("others"):
        measured = [[what, f"{figures['recovered_s']:.0f} s"] for what, figures in others.items()]
        tables.append(to_table(["fault", "recovered after"], measured))
    return "\n\n".join(tables)


def _describe_collecting(part: dict[str, Any]) -> list[list[str]]:
    parts = ("driver", "controller", "raylets", "dashboard and agents")
    used_ms = [f"{part['cpu'].get(name, {'cpu_ms_per_request': 0})['cpu_ms_per_request']:.1f}" for name in parts]
    memory = [f"{part['memory'][name]['mib'] / part['memory'][name]['processes']:,.0f}" for name in ("engines", *parts[:2])]
    return [
        ["rollouts a second", f"{part['rollouts_per_s']:,.0f}"],
        ["occupied slots of the engines", f"{part['slots_taken']:.1%}"],
        ["the driver waits for an actor: median, 99th percentile, longest", _write_milliseconds(part["call_s"])],
        ["ms of CPU a rollout: driver, controller, raylets, agents", ", ".join(used_ms)],
        ["MiB of an engine, driver, controller", ", ".join(memory)],
        ["peak of the object store, MB", f"{part['object_store_peak_mb']:,.1f}"],
    ]


def _write_seconds(first: float, others: dict[str, float]) -> str:
    return ", ".join(f"{seconds:.0f} s" for seconds in (first, others["p50"], others["max"]))


def _write_milliseconds(waits: dict[str, float]) -> str:
    return ", ".join(f"{1e3 * waits[name]:,.0f} ms" for name in ("p50", "p99", "max"))
