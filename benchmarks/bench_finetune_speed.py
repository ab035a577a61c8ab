"""Training tokens a second, and the memory of a GPU that they take: LoRA on rows of one size.

python benchmarks/bench_finetune_speed.py --model MODEL [--page-images 3] [--workers 1,2] [--zero zero2,zero3] [--finetune.* ...]

Each combination of `--workers` and `--zero` is a run of the finetune stage of its own, on the same rows a worker: prompts of
`--prompt-tokens` tokens, or a question and `--page-images` pages of 960 x 1280 pixels, and replies of `--reply-tokens`. What they
say does not matter for the speed. Tokens count from the end of the `--warm-up` steps on; memory is what the GPU's driver reports.
A combination that fails is reported with its reason.

With `--shapes 8b` MODEL is a tokenizer's folder, and the model has the shapes of Qwen3-VL-8B and random weights. 8b-vision has
its whole vision part and four layers of its language part. 1.5b and 7b are the shapes of Qwen2.5, whose rows are of text. With
`--finetune.parts` a result counts the weights of the published model that differ from those of the start, by part.

python benchmarks/bench_finetune_speed.py --model embedded --shapes 1.5b,7b --row-tokens 300-700,4096
    --ways padded,packed,packed+liger,trl,trl+liger --name finetune_packing

compares supervised training in the ways that `--ways` names, for each of the shapes and of `--row-tokens`, the tokens of a row or
the least and most of them: the stage with `finetune.sft.packing` off, on, and with `finetune.liger`; and a script of plain TRL
(`plain_trl.py`) that packs, with Liger or without. Neither packs rows with `--page-images`. A step has `--step-tokens` in each of
them, or one row at least. `liger` needs the package liger-kernel. LoRA, learning rate, dropout and checkpointing are those of
`--finetune.*` in all of them.
"""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from bench_collect_images import HEIGHT, WIDTH, write_page
from plain_trl import PlainOptions
from qwen3_vl_shapes import SHAPES_8B, SHAPES_TEXT, SHAPES_TINY, write_model, write_random_weights
from record import write_result
from safetensors import safe_open
from safetensors.torch import load_file
from training_flops import count_token_flops, measure_products
from transformers import AutoModelForCausalLM, Qwen2Config
from watch import Watch

from drag_ray.cluster.connection import connect
from drag_ray.config import load
from drag_ray.corpus.image_store import DIR_NAME
from drag_ray.engine.models.adapter_weights import is_finite
from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.engine.models.pretrained import load_tokenizer
from drag_ray.errors import DragRayError
from drag_ray.finetune.model_parts import find_part
from drag_ray.finetune.training_folder import CURVE_NAME, MODEL_DIR_NAME
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_code
from drag_ray.pipeline.stages import STAGES
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity

_SHAPES = {
    "8b": SHAPES_8B,
    "8b-vision": SHAPES_8B | {"text_config": SHAPES_8B["text_config"] | {"num_hidden_layers": 4}},
    "tiny": SHAPES_TINY,
}
_WAYS = {
    "padded": ["--no-finetune.sft.packing"],
    "packed": ["--finetune.sft.packing"],
    "packed+liger": ["--finetune.sft.packing", "--finetune.liger"],
}
_PLAIN_WAYS = {"trl": False, "trl+liger": True}
"""Whether it uses Liger."""
_PACK_TOKENS = 4096
"""of a pack of plain TRL, unless a step has fewer"""
_PAGE_TOKENS = WIDTH * HEIGHT // 32**2
"""of the picture of a page for Qwen3-VL"""
_AROUND_TEXT = 64
"""Tokens that a chat template has room for."""


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
    draw = random.Random(0)
    with (folder / "train.jsonl").open("w") as lines:
        for number in range(num_rows):
            prompt_tokens = draw.randint(*options.prompt_range)
            first = number % options.different_rows * options.page_images
            images = keys[first : first + options.page_images]
            shown = [{"type": "image", "text": None} for _ in images]
            question = {"type": "text", "text": f"Question {number}:" + filler * prompt_tokens}
            reply = [{"role": "assistant", "content": [{"type": "text", "text": filler * options.reply_tokens}]}]
            row = {"prompt": [{"role": "user", "content": [question, *shown]}], "images": images}
            lines.writelines(json.dumps(row | learned) + "\n" for learned in give_replies(kind, reply))


def give_replies(kind: str, reply: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rest of the rows of one prompt: a reply to learn, or two to compare."""
    if kind == "dpo":
        return [{"chosen": reply, "rejected": reply}]
    if kind == "reward":
        return [{"completion": reply, "score": score} for score in (1.0, 0.0)]
    return [{"completion": reply}]


def measure(run_dir: Path, config: RunConfig, warm_up: int) -> dict[str, Any]:
    """One run of the stage, to the model that it publishes. Its folder is left behind."""
    model = resolve_model(config.engine.model)
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
        **(describe_published(run_dir / "finetune" / MODEL_DIR_NAME, Path(model)) if config.finetune.trains_whole else {}),
    }


def describe_published(folder: Path, start: Path) -> dict[str, Any]:
    """Size of a whole model that the stage has published, and its weights that differ from those of its start."""
    before = {name: of for path in start.glob("*.safetensors") for of in [safe_open(path, "pt")] for name in of.keys()}  # noqa: SIM118
    numbers = Counter({"tensors_of_start": len(before), "published_bytes": 0, "tensors": 0, "changed": 0, "not_finite": 0})
    for path in sorted(folder.glob("*.safetensors")):
        numbers["published_bytes"] += path.stat().st_size
        for name, weight in load_file(path).items():
            numbers["tensors"] += 1
            changed = not torch.equal(weight, before[name].get_tensor(name).to(weight.dtype))
            numbers.update({"changed": changed, f"tensors_{find_part(name)}": 1, f"changed_{find_part(name)}": changed})
            numbers["not_finite"] += not is_finite(weight)
    return {name: int(number) for name, number in numbers.items()}


def measure_plain(run_dir: Path, config: RunConfig, way: str, packs: bool, options: argparse.Namespace) -> dict[str, Any]:
    """One run of plain TRL, in a process of its own."""
    model, pack = resolve_model(config.engine.model), min(_PACK_TOKENS, options.step_tokens)
    settings, images_dir = config.finetune, run_dir / "index" / DIR_NAME
    given = PlainOptions(
        model=model,
        train_path=str(run_dir / "format" / settings.chosen_method.row_format / "train.jsonl"),
        images_dir=str(images_dir) if images_dir.exists() else "",
        max_length=pack,
        per_device_train_batch_size=options.step_tokens // pack if packs else settings.batch_size,
        gradient_checkpointing=settings.gradient_checkpointing,
        use_liger_kernel=_PLAIN_WAYS[way],
        lora_dropout=settings.lora_dropout,
        learning_rate=settings.learning_rate,
        target_modules=list(settings.target_modules),
    )
    with GpuMemory() as memory:
        command = [sys.executable, str(Path(__file__).with_name("plain_trl.py")), json.dumps(given)]
        ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        return {"failed": ended.stderr.strip()[-1000:]}
    steps = json.loads(ended.stdout.splitlines()[-1])["steps"]
    warm_up = min(options.warm_up, len(steps) - 1)
    first, last = steps[warm_up - 1], steps[-1]
    seconds = last["seconds"] - first["seconds"]
    return {
        "tokens_per_s": round((last["tokens"] - first["tokens"]) / seconds, 1),
        "seconds_per_step": round(seconds / (len(steps) - warm_up), 3),
        "gpu_memory_gib": memory.peak_gib,
        "steps": len(steps),
        "tokens": last["tokens"],
        "first_loss": steps[0]["loss"],
        "last_loss": last["loss"],
    }


def write_text_model(folder: Path, tokenizer_dir: Path, shapes: dict[str, Any]) -> str:
    """A Qwen2.5 of these shapes with random weights."""
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        config = Qwen2Config(**shapes, max_position_embeddings=32768)
        made: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    made.save_pretrained(folder)
    load_tokenizer(tokenizer_dir).save_pretrained(folder)
    del made
    torch.cuda.empty_cache()  # does nothing without a GPU
    return str(folder)


def parse_arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded", help="as engine.model")
    parser.add_argument("--shapes", help=f"of models that are made here, with random weights: {', '.join(_SHAPES | SHAPES_TEXT)}")
    parser.add_argument("--workers", default="1", help="training processes, comma-separated")
    parser.add_argument("--zero", default="auto", help="as finetune.deepspeed, comma-separated")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warm-up", type=int, default=4, help="steps before the clock starts")
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--reply-tokens", type=int, default=64)
    parser.add_argument("--page-images", type=int, default=0, help="pages a row")
    parser.add_argument("--ways", help=f"comma-separated: {', '.join([*_WAYS, *_PLAIN_WAYS])}")
    parser.add_argument("--row-tokens", default="300-700", help="with --ways: of a row, comma-separated")
    parser.add_argument("--step-tokens", type=int, default=8192, help="with --ways")
    parser.add_argument("--different-rows", type=int, default=16, help="rows with pages of their own; later ones repeat them")
    parser.add_argument("--name", default="finetune_speed", help="name of the result")
    return parser.parse_known_args()


def make_model(options: argparse.Namespace, shapes: str, scratch: Path) -> str:
    """The model that is named, or one of the shapes, in a folder."""
    if shapes in SHAPES_TEXT:
        return write_text_model(scratch / shapes, Path(resolve_model(options.model)), SHAPES_TEXT[shapes])
    if shapes:
        model = str(write_model(scratch / "model", Path(resolve_model(options.model)), _SHAPES[shapes]))
        write_random_weights(scratch / "model")
        return model
    return options.model


def run_all(options: argparse.Namespace, rest: Sequence[str], scratch: Path) -> dict[str, Any]:
    """A result for each combination."""
    options.prompt_range = (options.prompt_tokens, options.prompt_tokens)
    model = make_model(options, options.shapes or "", scratch)
    results = {}
    for number, (workers, zero) in enumerate(itertools.product(options.workers.split(","), options.zero.split(","))):
        given = ["--engine.model", model, "--finetune.num-workers", workers, "--finetune.deepspeed", zero]
        config = load_config([*given, *rest], options.steps)
        batch = int(workers) * config.finetune.batch_size * config.finetune.gradient_accumulation
        run_dir = scratch / str(number)
        with connect(config.cluster):
            write_rows(run_dir, resolve_model(model), config.finetune.chosen_method.row_format, batch * options.steps, options)
            results[f"{workers} workers, {zero}"] = measure(run_dir, config, options.warm_up)
        print(f"{workers} workers, {zero}:", json.dumps(results[f"{workers} workers, {zero}"]), flush=True)
    return results


def compare_ways(options: argparse.Namespace, rest: Sequence[str], scratch: Path) -> dict[str, Any]:
    """A result for each of the shapes, of the rows and of the ways."""
    results: dict[str, Any] = {"matrix_products_tflops": measure_products()}
    for shapes in (options.shapes or "").split(","):
        model = make_model(options, shapes, scratch)
        for row_tokens, way in itertools.product(options.row_tokens.split(","), options.ways.split(",")):
            least, most = (int(number) for number in (row_tokens.split("-") * 2)[:2])
            around = options.reply_tokens + _AROUND_TEXT
            options.prompt_range = (least - around, most - around)
            seen = options.page_images * _PAGE_TOKENS
            batch = max(1, round(2 * options.step_tokens / (least + most + 2 * seen)))
            given = ["--engine.model", model, "--finetune.num-workers", "1", "--finetune.batch-size", str(batch)]
            given += ["--finetune.max-length", str(most + seen), "--finetune.sft.rows", "sft_query", *_WAYS.get(way, [])]
            config = load_config([*given, *rest], options.steps)
            method, batch = config.finetune.chosen_method, config.finetune.batch_size
            run_dir = scratch / f"{shapes} {row_tokens} {way}"
            write_rows(run_dir, resolve_model(model), method.row_format, batch * options.steps, options)
            if way in _PLAIN_WAYS:
                found = measure_plain(run_dir, config, way, not seen and config.finetune.method == "sft", options)
            else:
                with connect(config.cluster):
                    found = measure(run_dir, config, options.warm_up)
            text = SHAPES_TEXT.get(shapes) or _SHAPES.get(shapes, {}).get("text_config", {})
            if "vocab_size" in text and not seen and config.finetune.method == "sft":
                share = options.reply_tokens * 2 / (least + most)
                found["token_gflop"] = round(count_token_flops(text, least, most, share) / 1e9, 3)
            name = f"{shapes or options.model}, rows of {row_tokens}, {way}"
            results[name] = found
            print(f"{name}:", json.dumps(found), flush=True)
    return results


def load_config(given: Sequence[str], num_steps: int) -> RunConfig:
    """One epoch, of which no checkpoint is kept but the last."""
    end = ["--finetune.epochs", "1", "--finetune.checkpoint-steps", str(num_steps), "--no-finetune.merge"]
    return load(RunConfig, [*end, *given])


def main() -> None:
    options, rest = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="drag-ray-bench-") as scratch:
        results = (compare_ways if options.ways else run_all)(options, rest, Path(scratch))
    write_result(options.name, {**results, "options": vars(options) | {"rest": rest}})


if __name__ == "__main__":
    main()
