"""Tables of what a million questions would take on more GPUs than were at hand, reckoned from what was measured on few."""

from typing import Any

from figure_cells import name_gpu, read_record, read_results, to_paragraph, to_table

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
    """What the parts that there is one of have to carry, in rollouts of text."""
    rate, most = _read_rate("collect_scaling_text"), _read_most("collect_scaling_text")

    def write_cores(part: str) -> list[str]:
        return [f"{most[part] / most['rollouts_per_s'] * rate * gpus:.1f}" for gpus in GPUS]

    rows = [
        ["driver, of the one core that a Python process has", *write_cores("driver_cpu_cores")],
        ["raylet of the driver's node, cores", *write_cores("raylet_cpu_cores")],
        ["chunks that the driver hands out, a second", *(f"{rate * gpus / CHUNK_ROLLOUTS:,.0f}" for gpus in GPUS)],
        ["files of trajectories on the shared disk, a second", *(f"{gpus / FLUSH_S:,.0f}" for gpus in GPUS)],
        ["marks of rollouts that begin and end there, a second", *(f"{2 * rate * gpus:,.0f}" for gpus in GPUS)],
    ]
    return to_table(["GPUs", *map(str, GPUS)], rows)


def write_scaling_bend() -> str:
    """From how many GPUs on the driver has more to do than it can."""
    rate, most = _read_rate("collect_scaling_text"), _read_most("collect_scaling_text")
    driver_s = most["driver_cpu_cores"] / most["rollouts_per_s"]
    busy = 1 / (driver_s * rate)
    return to_paragraph(
        f"""The driver took {most["driver_cpu_cores"]:.2f} of a core at {most["rollouts_per_s"]:.0f} rollouts a second, in
        chunks of {CHUNK_ROLLOUTS}: {1e3 * driver_s:.1f} ms a rollout. At that, about {busy:.0f} GPUs of this kind keep it busy.
        Ray's object store held {most["object_store_peak_mb"]:.0f} MB at most: trajectories never go through it."""
    )


def write_scaling_terms() -> str:
    """What the table of hours is reckoned from."""
    run = _read_most("collect_scaling_text")
    return to_paragraph(
        f"""An 8B model (the shapes of Qwen3-VL-8B, {run["output_tokens"] / run["turns"]:.0f} tokens a reply, about
        {run["turns"] / run["rollouts"]:.1f} turns a rollout on text; three page images a search; `collect_scaling_text.json`,
        `collect_scaling_images.json`), at the efficiency that the most GPUs of each run had:"""
    )


def write_scaling_start() -> str:
    """What the start of the engines comes to."""
    ready_s = [s for run in read_results("collect_scaling_text")["gpus"].values() for s in run["engines_ready_after_s"]]
    return to_paragraph(
        f"""GPU hours do not depend on how many GPUs there are, as long as the efficiency holds; times the price of an hour they
        are the cost. What comes on top is the start of the engines, {min(ready_s):.0f} to {max(ready_s):.0f} s each time
        (`engines_ready_after_s`), which on {GPUS[-1]} GPUs is a good part of the whole: fewer GPUs for longer are cheaper
        there."""
    )


def write_scaling_process() -> str:
    """What process and format would take."""
    million = read_results("process_format")["stages"][-1]
    rollouts, cpu_us = QUESTIONS * SAMPLES, million["cpu_us_per_trajectory"]
    size = million["written_gib"] / million["trajectories"]
    return to_paragraph(
        f"""Process and format are small beside it: {cpu_us:.0f} µs of CPU a trajectory (`process_format.json`),
        {rollouts * cpu_us / 1e6 / 60:.0f} minutes of one core for all four million, and their folders hold
        {size * 2**30 / 1000:.1f} kB a trajectory, {rollouts * size:.0f} GiB. What collect writes was not measured by itself.
        Training runs on as many workers as `finetune.num_workers` says; it was measured on one host alone."""
    )


def _read_rate(name: str) -> float:
    """Rollouts a second and GPU, at the efficiency that the most GPUs of the run had."""
    results = read_results(name)
    efficiency = results["efficiency"]
    return results["gpus"]["1"]["rollouts_per_s"] * min(1.0, efficiency[max(efficiency, key=int)])


def _read_most(name: str) -> dict[str, Any]:
    """What was measured with the most GPUs of the run."""
    gpus = read_results(name)["gpus"]
    return gpus[max(gpus, key=int)]


def _write_time(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else f"{seconds / 60:,.0f} min"
