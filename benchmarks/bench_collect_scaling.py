"""Throughput of collection by GPUs of one host: the same multi-turn workload a GPU, on 1, 2, 4, 8 of them.

python benchmarks/bench_collect_scaling.py --gpus 1,2,4,8 --index-dir runs/mine/index --model MODEL [--load-format dummy]

Each number of GPUs is a collection of its own (`bench_collect_throughput.py --side collect`), with `--rollouts` rollouts a GPU:
replies of a fixed number of tokens, scripted searches of one to `--turns` turns, an engine a GPU or, with
`--tensor-parallel-size`, an engine for so many. `--page-view image` shows three page images a search (the index must hold them).
Efficiency is output tokens a second and GPU, over that of the smallest number. The clock starts when all engines have loaded the
model and compiled its kernels (`engines_ready_after_s`: when each had). An engine is idle while no request is in it, from then on
to the last reply of any engine: the tail counts.

A GPU has `--cores-per-gpu` of the host's CPU cores at each number, its share of them by default: fewer GPUs gain nothing from
the cores that the others would need.

Options that are not named below go to `bench_collect_throughput.py`.
"""

import argparse
import json
import os
import tempfile
from typing import Any

import torch
from bench_collect_throughput import run_side
from record import write_result


def run(num_gpus: int, cores: set[int], options: argparse.Namespace, rest: list[str]) -> dict[str, Any]:
    """One collection on so many GPUs and their share of the CPU cores."""
    size = options.tensor_parallel_size
    os.sched_setaffinity(0, sorted(cores)[: num_gpus * options.cores_per_gpu])
    with tempfile.TemporaryDirectory(prefix="drag-ray-bench-") as folder:
        return run_side(
            [
                *("--side", "collect", "--folder", folder, "--engines", str(num_gpus // size)),
                *("--tensor-parallel-size", str(size), "--rollouts", str(options.rollouts * num_gpus), *rest),
            ]
        )


def compute_efficiencies(results: dict[int, dict[str, Any]]) -> dict[int, float]:
    """Output tokens a second and GPU, over those on the smallest number of GPUs."""
    per_gpu = {num_gpus: figures["output_tokens_per_s"] / num_gpus for num_gpus, figures in results.items()}
    return {num_gpus: round(rate / per_gpu[min(per_gpu)], 4) for num_gpus, rate in per_gpu.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", default="1,2,4,8", help="numbers of GPUs; those that this host lacks are left out, aloud")
    parser.add_argument("--rollouts", type=int, default=1024, help="rollouts a GPU")
    parser.add_argument("--tensor-parallel-size", type=int, default=1, help="GPUs that share an engine")
    parser.add_argument("--cores-per-gpu", type=int, default=0, help="0 for an even share of the host's")
    parser.add_argument("--name", default="collect_scaling", help="name of the result")
    options, rest = parser.parse_known_args()
    there = torch.cuda.device_count()
    cores = os.sched_getaffinity(0)
    options.cores_per_gpu = options.cores_per_gpu or max(1, len(cores) // max(1, there))
    wanted = sorted({int(number) for number in options.gpus.split(",")})
    possible = [number for number in wanted if options.tensor_parallel_size <= number <= there]
    print(
        f"this host has {there} GPUs; measured: {possible}; left out: {[number for number in wanted if number not in possible]}"
    )
    if not possible:
        return
    # The largest number first: it is the one for which an index may have too few questions.
    results = dict(sorted((number, run(number, cores, options, rest)) for number in reversed(possible)))
    for number, figures in results.items():
        figures["rollouts_per_s"] = round(figures["rollouts"] / figures["seconds"], 2)
        print(number, json.dumps(figures))
    efficiencies = compute_efficiencies(results)
    print("efficiency", efficiencies)
    write_result(options.name, {"gpus": results, "efficiency": efficiencies, "options": vars(options) | {"rest": rest}})


if __name__ == "__main__":
    main()
