"""The parts of a step of packed LoRA: its kernels, and the speed of variants of it, in one process on one GPU, without Ray.

python benchmarks/profile_finetune.py [--shapes 7b] [--row-tokens 4096] [--rows 2] [--variants peft,liger,...] [--profiled liger]

Trains a Qwen2.5 of these shapes with random weights, by the stage's own `train`, in each of the `--variants` one after the
other. A step has `--rows` packed rows of `--row-tokens` tokens (or between two numbers), of which `--reply-tokens` are learned.
Times are means of the steps after `--warm-up`; of the `--profiled` variants the kernels of three more steps are listed.
Utilisation is that of `training_flops.py`. A variant that fails is reported with its reason.
"""

import argparse
import gc
import json
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from peft.tuners.lora import Linear
from qwen3_vl_shapes import SHAPES_TEXT
from record import write_result
from torch.profiler import ProfilerActivity, profile
from training_flops import count_token_flops, measure_products
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config
from trl.trainer.sft_config import SFTConfig

from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.engine.models.pretrained import load_tokenizer
from drag_ray.finetune import trainer as training
from drag_ray.finetune.config import FinetuneConfig, TrainJob
from drag_ray.finetune.curve import ReportCallback
from drag_ray.finetune.methods.sft import SFT
from drag_ray.finetune.rows.tokenized_rows import TokenizedRows
from drag_ray.finetune.rows.training_rows import TrainingRows
from drag_ray.finetune.trainers import packed_rows
from drag_ray.finetune.trainers.trained_tokens import find_base

_PROFILED_STEPS = 3


class Variant(NamedTuple):
    """`options` of the stage, arguments of `SFTConfig`, PEFT's own layers instead of ours, what is done to the trainer, and by
    how much its batch is larger."""

    options: Mapping[str, Any] = MappingProxyType({})
    arguments: Mapping[str, Any] = MappingProxyType({})
    layers_of_peft: bool = False
    change: Callable[[Any], object] | None = None
    times_rows: int = 1


def compile_blocks(trainer: Any) -> None:
    """Each layer of the model by itself; all share what is compiled for the first."""
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = 64
    for block in find_base(trainer.model).model.layers:
        block.compile()


def halve_adapter(trainer: Any) -> None:
    """The adapter in bfloat16, and with it what the optimizer keeps."""
    for weight in trainer.model.parameters():
        if weight.requires_grad:
            weight.data = weight.data.bfloat16()


_LIGER = {"liger": True}
_VARIANTS = {
    "peft": Variant(_LIGER, layers_of_peft=True),
    "liger": Variant(_LIGER),
    "plain": Variant(),
    "peft-plain": Variant(layers_of_peft=True),
    "no-dropout": Variant(_LIGER | {"lora_dropout": 0.0}),
    "bfloat16-adapter": Variant(_LIGER, change=halve_adapter),
    "compiled": Variant(change=compile_blocks),
    "compiled-liger": Variant(_LIGER, change=compile_blocks),
    "compiled-peft": Variant(layers_of_peft=True, change=compile_blocks),
    "offloaded": Variant(_LIGER, arguments={"activation_offloading": True}),
    "checkpointed": Variant(_LIGER | {"gradient_checkpointing": True}),
    "twice-the-rows": Variant(_LIGER, times_rows=2),
}


class StepTimes(ReportCallback):
    """Times steps, and takes a profile of some at the end."""

    made: "StepTimes"
    profiles = False

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        StepTimes.made = self
        self.ends: list[float] = []
        self.profiler: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note the time, with all work of the step done."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())
        if StepTimes.profiles and state.global_step == state.max_steps - _PROFILED_STEPS:
            self.profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True)
            self.profiler.start()
        elif self.profiler and state.global_step == state.max_steps:
            self.profiler.stop()


def list_kernels(profiler: Any, most: int = 30) -> dict[str, Any]:
    """Milliseconds a step of the kernels that take most, and of all together."""
    events = (event for event in profiler.key_averages() if str(event.device_type).endswith("CUDA"))
    found = [event for event in events if event.self_device_time_total]
    found.sort(key=lambda event: -event.self_device_time_total)
    kernels = [
        {
            "name": event.key[:160],
            "ms": round(event.self_device_time_total / 1000 / _PROFILED_STEPS, 3),
            "calls": event.count // _PROFILED_STEPS,
        }
        for event in found
    ]
    return {"all_ms": round(sum(kernel["ms"] for kernel in kernels), 1), "kernels": kernels[:most]}


def build_rows(num_rows: int, least: int, most: int, reply_tokens: int) -> TrainingRows:
    draw = random.Random(0)
    rows: list[dict[str, Any]] = []
    for number in range(num_rows):
        size = draw.randint(least, most)
        tokens = [draw.randrange(1000) for _ in range(size)]
        labels = [-100] * (size - reply_tokens) + tokens[size - reply_tokens :]
        rows.append({"name": str(number), "input_ids": tokens, "labels": labels, "image_keys": [], "weight": 1.0})
    return TrainingRows(TokenizedRows(rows), TokenizedRows(), {"rows": num_rows, "validation_rows": 0, "images": 0})


def make_model(folder: str, dtype: str, quantization: str) -> Any:
    """A model of the folder's configuration, of random weights."""
    assert quantization == "none"
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=getattr(torch, dtype))


def run_variant(variant: Variant, folder: Path, options: argparse.Namespace, *, profiles: bool) -> dict[str, Any]:
    """Speed and memory of a variant, and its kernels."""
    on_gpu = torch.cuda.is_available()
    least, most = options.sizes
    rows, num_steps = options.rows * variant.times_rows, options.warm_up + options.steps + (_PROFILED_STEPS if profiles else 0)
    given = {"max_length": most, "batch_size": rows, "epochs": 1, "checkpoint_steps": num_steps, "merge": False}
    config = FinetuneConfig.model_validate({**given, **variant.options})
    paths = (folder / "train.jsonl", folder / "validation.jsonl")
    job = TrainJob(config, str(folder), *paths, (), use_gpu=on_gpu, num_workers=1, num_threads=2)
    build_trainer = SFT.build_trainer

    def build_changed(method: SFT, *of: Any) -> Any:
        trainer = build_trainer(method, *of)
        if variant.change:
            variant.change(trainer)
        return trainer

    def build_arguments(method: SFT, given: dict[str, Any]) -> SFTConfig:
        return SFTConfig(**given, **variant.arguments, dataset_kwargs={"skip_prepare_dataset": True})

    StepTimes.profiles = profiles
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    with ExitStack() as patches:
        patches.enter_context(patch.object(SFT, "build_trainer", build_changed))
        patches.enter_context(patch.object(SFT, "build_arguments", build_arguments))
        patches.enter_context(patch.object(SFT, "load_model", lambda _, *of: make_model(*of)))
        patches.enter_context(patch.object(training, "ReportCallback", StepTimes))
        if on_gpu:  # the compiler asks no GPU for what it can
            patches.enter_context(patch.object(packed_rows, "_has_flash", lambda query, value: query.dtype == torch.bfloat16))
        if variant.layers_of_peft:
            patches.enter_context(patch.object(training, "LoraLinear", Linear))
        training_rows = build_rows(rows * num_steps, least, most, options.reply_tokens)
        outcome = training.train(job, training_rows, lambda *_: None, None)
    ends, lengths = StepTimes.made.ends, [len(row["input_ids"]) for row in training_rows.train.rows]
    last = options.warm_up + options.steps
    seconds = ends[last - 1] - ends[options.warm_up - 1]
    tokens_per_s = sum(lengths[rows * options.warm_up : rows * last]) / seconds
    share = options.reply_tokens * len(lengths) / sum(lengths)
    flops = count_token_flops(SHAPES_TEXT[options.shapes], least, most, share)
    return {
        "tokens_per_s": round(tokens_per_s, 1),
        "seconds_per_step": round(seconds / options.steps, 4),
        "tflops": round(tokens_per_s * flops / 1e12, 1),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1) if on_gpu else None,
        "losses": [round(point["loss"], 4) for point in outcome["curve"] if "loss" in point][:: num_steps - 1],
        "attention": outcome["attention"],
        **(list_kernels(StepTimes.made.profiler) if profiles else {}),
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="7b", choices=SHAPES_TEXT)
    parser.add_argument("--row-tokens", default="4096")
    parser.add_argument("--reply-tokens", type=int, default=64)
    parser.add_argument("--rows", type=int, default=2, help="of a step")
    parser.add_argument("--variants", default=",".join(_VARIANTS), help="comma-separated")
    parser.add_argument("--profiled", default="", help="of these variants, comma-separated")
    parser.add_argument("--warm-up", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--name", default="finetune_parts", help="name of the result")
    options = parser.parse_args()
    numbers = [int(number) for number in options.row_tokens.split("-")]
    options.sizes = [min(numbers), max(numbers)]
    return options


def main() -> None:
    options = parse_arguments()
    results: dict[str, Any] = {"matrix_products_tflops": measure_products(), "options": vars(options)}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        Qwen2Config(**SHAPES_TEXT[options.shapes], max_position_embeddings=32768).save_pretrained(folder)
        load_tokenizer(resolve_model("embedded")).save_pretrained(folder)
        for name in options.variants.split(","):
            began = time.perf_counter()
            try:
                found: dict[str, Any] = run_variant(
                    _VARIANTS[name], folder, options, profiles=name in options.profiled.split(",")
                )
            except Exception as error:  # of a compiler, say: the others are measured all the same
                found = {"failed": f"{type(error).__name__}: {error}"[:1500]}
            found["wall_s"] = round(time.perf_counter() - began, 1)
            if results["matrix_products_tflops"] and "tflops" in found:
                found["utilisation"] = round(found["tflops"] / results["matrix_products_tflops"], 3)
            results[name] = found
            print(f"{name}:", json.dumps({key: value for key, value in found.items() if key != "kernels"}), flush=True)
            write_result(options.name, results)
            gc.collect()
            torch.cuda.empty_cache()  # does nothing without a GPU


if __name__ == "__main__":
    main()
