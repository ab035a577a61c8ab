"""Tables of what a million questions would take on more GPUs than were at hand, reckoned from what was measured on few."""

from typing import Any

from figure_cells import name_gpu, read_record, read_results, to_table

QUESTIONS, SAMPLES = 1_000_000, 4
GPUS = (8, 64, 512)
CHUNK_ROLLOUTS, FLUSH_S = 8, 5.0
"""`rollout.chunk_rollouts` and `rollout.flush_s`"""


def write_scaling_time() -> str:
    """Hours of a collection, by GPUs."""
    rates = {"text": _read_rate("collect_scaling_text"), "page images": _read_rate("collect_scaling_images")}
    rollouts = QUESTIONS * SAMPLES
    rows = [
        *([f"rollouts a second, {label}", *(f"{rate * gpus:,.0f}" for gpus in GPUS)] for label, rate in rates.items()),
        *([f"time, {label}", *(_write_time(rollouts / (rate * gpus)) for gpus in GPUS)] for label, rate in rates.items()),
        *([f"GPU hours, {label}", *[f"{rollouts / rate / 3600:,.0f}"] * len(GPUS)] for label, rate in rates.items()),
    ]
    return to_table([f"GPUs ({name_gpu(read_record('collect_scaling_text'))})", *map(str, GPUS)], rows)


def write_scaling_limits() -> str:
    """Load of the parts that there is one of, in rollouts of text."""
    rate, most = _read_rate("collect_scaling_text"), _read_most("collect_scaling_text")

    def write_cores(part: str) -> list[str]:
        return [f"{most[part] / most['rollouts_per_s'] * rate * gpus:.1f}" for gpus in GPUS]

    rows = [
        ["driver, cores (a Python process has one)", *write_cores("driver_cpu_cores")],
        ["raylet of the driver's node, cores", *write_cores("raylet_cpu_cores")],
        ["chunks that the driver assigns, a second", *(f"{rate * gpus / CHUNK_ROLLOUTS:,.0f}" for gpus in GPUS)],
        ["files of trajectories on the shared disk, a second", *(f"{gpus / FLUSH_S:,.0f}" for gpus in GPUS)],
        ["start and end marks of rollouts on it, a second", *(f"{2 * rate * gpus:,.0f}" for gpus in GPUS)],
    ]
    return to_table(["GPUs", *map(str, GPUS)], rows)


def _read_rate(name: str) -> float:
    """Rollouts a second and GPU, at the efficiency that the most GPUs of the run had."""
    results = read_results(name)
    efficiency = results["efficiency"]
    return results["gpus"]["1"]["rollouts_per_s"] * min(1.0, efficiency[max(efficiency, key=int)])


def _read_most(name: str) -> dict[str, Any]:
    """The measurement with the most GPUs of the run."""
    gpus = read_results(name)["gpus"]
    return gpus[max(gpus, key=int)]


def _write_time(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else f"{seconds / 60:,.0f} min"
