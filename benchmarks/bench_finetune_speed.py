"""Training tokens a second, and the memory of a GPU that they take: LoRA on rows of one size.

python benchmarks/bench_finetune_speed.py --model MODEL [--page-images 3] [--workers 1,2] [--zero zero2,zero3] [--finetune.* ...]

Each combination of `--workers` and `--zero` is a run of the finetune stage of its own, on the same rows a worker: prompts of
`--prompt-tokens` tokens, or a question and `--page-images` pages of 960 x 1280 pixels, and replies of `--reply-tokens`. What they
say does not matter for the speed. Tokens count from the end of the `--warm-up` steps on; memory is what the GPU's driver reports.
A combination that fails is reported with its reason.

With `--shapes 8b` MODEL is a tokenizer's folder, and the model has the shapes of Qwen3-VL-8B and random weights.
"""

import argparse
import itertools
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from bench_collect_images import write_page
from qwen3_vl_shapes import SHAPES_8B, SHAPES_TINY, write_model, write_random_weights
from record import write_result
from watch import Watch

from drag_ray.cluster.connection import connect
from drag_ray.config import load
from drag_ray.corpus.page_images import DIR_NAME
from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.engine.models.pretrained import load_tokenizer
from drag_ray.errors import DragRayError
from drag_ray.finetune.outcome import CURVE_NAME
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_code
from drag_ray.pipeline.stages import STAGES
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity

_SHAPES = {"8b": SHAPES_8B, "tiny": SHAPES_TINY}


class GpuMemory(Watch):
    """The most memory that was in use at once on any GPU that this process may use, in GiB; other programs count too."""

    interval_s = 0.5
    peak_gib = 0.0

    def look(self) -> None:
        if not torch.cuda.device_count():
            return
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        query += ["--id", os.environ["CUDA_VISIBLE_DEVICES"]] if os.environ.get("CUDA_VISIBLE_DEVICES") else []
        used_mib = subprocess.run(query, check=True, capture_output=True, text=True).stdout.split()
        self.peak_gib = max(self.peak_gib, round(max(map(int, used_mib)) / 1024, 1))


def write_rows(run_dir: Path, model: str, kind: str, num_rows: int, options: argparse.Namespace) -> None:
    """Rows of one size, or pairs of such, none of them for validation."""
    tokenizer = load_tokenizer(model)
    filler = tokenizer.decode([tokenizer.encode(" word", add_special_tokens=False)[0]])
    store = run_dir / "index" / DIR_NAME
    keys = [write_page(store, number) for number in range(options.page_images * options.different_rows)]
    folder = run_dir / "format" / kind
    folder.mkdir(parents=True)
    (folder / "validation.jsonl").write_text("")
    with (folder / "train.jsonl").open("w") as lines:
        for number in range(num_rows):
            first = number % options.different_rows * options.page_images
            images = keys[first : first + options.page_images]
            shown = [{"type": "image", "text": None} for _ in images]
            question = {"type": "text", "text": f"Question {number}:" + filler * options.prompt_tokens}
            reply = [{"role": "assistant", "content": [{"type": "text", "text": filler * options.reply_tokens}]}]
            row = {"prompt": [{"role": "user", "content": [question, *shown]}], "images": images}
            lines.writelines(json.dumps(row | learned) + "\n" for learned in give_replies(kind, reply))


def give_replies(kind: str, reply: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the rows of one prompt hold besides it: a reply to learn, or two to compare."""
    if kind == "dpo":
        return [{"chosen": reply, "rejected": reply}]
    if kind == "reward":
        return [{"completion": reply, "score": score} for score in (1.0, 0.0)]
    return [{"completion": reply}]


def measure(run_dir: Path, config: RunConfig, warm_up: int) -> dict[str, Any]:
    """One run of the stage. Its folder is left behind."""
    with GpuMemory() as memory, StageFolder(run_dir / "finetune", Identity("finetune", {}, {})) as folder:
        try:
            counts = run_code(STAGES["finetune"], config.model_copy(update={"run_dir": run_dir}), folder)
        except DragRayError as error:
            return {"failed": str(error)}
    points = [json.loads(line) for line in (run_dir / "finetune" / CURVE_NAME).read_text().splitlines()]
    first, last = points[min(warm_up, len(points) - 1) - 1], points[-1]
    seconds = last["seconds"] - first["seconds"]
    return {
        "tokens_per_s": round((last["tokens"] - first["tokens"]) / seconds, 1),
        "seconds_per_step": round(seconds / (last["step"] - first["step"]), 3),
        "gpu_memory_gib": memory.peak_gib,
        **{name: counts[name] for name in ("rows", "rows_too_long", "steps", "tokens", "trained_tokens", "images")},
        **{name: counts[name] for name in ("first_loss", "last_loss")},
    }


def parse_arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded", help="as engine.model")
    parser.add_argument("--shapes", choices=tuple(_SHAPES), help="of a model that is made here, with random weights")
    parser.add_argument("--workers", default="1", help="training processes, comma-separated")
    parser.add_argument("--zero", default="auto", help="as finetune.deepspeed, comma-separated")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warm-up", type=int, default=4, help="steps before the clock starts")
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--reply-tokens", type=int, default=64)
    parser.add_argument("--page-images", type=int, default=0, help="pages a row")
    parser.add_argument("--different-rows", type=int, default=16, help="rows with pages of their own; later ones repeat them")
    parser.add_argument("--name", default="finetune_speed", help="name of the result")
    return parser.parse_known_args()


def run_all(options: argparse.Namespace, rest: Sequence[str], scratch: Path) -> dict[str, Any]:
    """A result for each combination."""
    model = options.model
    if options.shapes:
        model = str(write_model(scratch / "model", Path(options.model), _SHAPES[options.shapes]))
        write_random_weights(scratch / "model")
    results = {}
    for number, (workers, zero) in enumerate(itertools.product(options.workers.split(","), options.zero.split(","))):
        given = ["--engine.model", model, "--finetune.num-workers", workers, "--finetune.deepspeed", zero]
        given += ["--finetune.epochs", "1", "--finetune.checkpoint-steps", str(options.steps), "--no-finetune.merge", *rest]
        config = load(RunConfig, given)
        batch = int(workers) * config.finetune.batch_size * config.finetune.gradient_accumulation
        run_dir = scratch / str(number)
        with connect(config.cluster):
            write_rows(run_dir, resolve_model(model), config.finetune.chosen_method.row_format, batch * options.steps, options)
            results[f"{workers} workers, {zero}"] = measure(run_dir, config, options.warm_up)
        print(f"{workers} workers, {zero}:", json.dumps(results[f"{workers} workers, {zero}"]), flush=True)
    return results


def main() -> None:
    options, rest = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="drag-ray-bench-") as scratch:
        results = run_all(options, rest, Path(scratch))
    write_result(options.name, {**results, "options": vars(options) | {"rest": rest}})


if __name__ == "__main__":
    main()
