"""The table of the machines that results were measured on."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from figure_cells import RESULTS_DIR, read_record, to_table

UNKNOWN = "not recorded"
"""Of rows that were measured before rows named their machine."""


def write_machines() -> str:
    """Each machine with the results that were measured on it."""
    results: dict[str, list[str]] = defaultdict(list)
    for path in sorted(RESULTS_DIR.glob("*.json")):
        for machine in list_machines(path.stem):
            results[machine].append(f"`{path.stem}`")
    by_gpu = sorted(results, key=lambda machine: (machine == UNKNOWN, "H" in machine, machine))
    return to_table(["machine", "results"], [[machine, ", ".join(results[machine])] for machine in by_gpu])


def list_machines(name: str) -> list[str]:
    """The machines of a result, each once; ValueError where it names none."""
    machines = list(dict.fromkeys(_write_machine(machine) for machine in _find_machines(read_record(name))))
    if not machines:
        raise ValueError(f"benchmarks/results/{name}.json does not say on which machine it was measured")
    return machines


def _find_machines(value: Any) -> Iterator[dict[str, Any]]:
    """All that stands under `machine`, however deep."""
    if isinstance(value, dict):
        if "machine" in value:
            yield value["machine"]
        value = [part for key, part in value.items() if key != "machine"]
    if isinstance(value, list):
        for part in value:
            yield from _find_machines(part)


def _write_machine(machine: dict[str, Any]) -> str:
    """For example `2 H200; Intel Xeon, 32 cores, 252 GiB`."""
    gpus = [gpu.removeprefix("NVIDIA ").partition(" ")[0] for gpu in machine.get("gpus", [])]
    host = {
        "cpu": machine.get("cpu", "").replace("(R)", "").removesuffix(" Processor"),
        "cores": f"{machine.get('cores')} cores",
        "memory_gib": f"{machine.get('memory_gib', 0):.0f} GiB",
    }
    parts = [f"{len(gpus)} {gpus[0]}"] if gpus else ["no GPU"] if "gpus" in machine else []
    parts += [", ".join(dict.fromkeys(text for key, text in host.items() if key in machine))]
    return "; ".join(filter(None, parts)) or UNKNOWN
