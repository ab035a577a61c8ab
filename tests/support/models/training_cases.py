"""A training of four rows on a model of two layers with random weights, for each method."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from embedded_tokenizer import VOCABULARY, load_shared_tokenizer, write_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM
from trl.trainer.sft_config import SFTConfig

from drag_ray.finetune.config import FinetuneConfig, TrainJob
from drag_ray.finetune.methods.registry import METHOD_NAMES

NUM_ROWS = 4
SHAPE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
"""Of a model of two layers."""
ADAPTER_METHODS = tuple(name for name in METHOD_NAMES if FinetuneConfig(method=name).chosen_method.trains_adapter)


def write_model(folder: Path) -> Path:
    """The model with the tokenizer of the embedded one."""
    torch.manual_seed(0)
    shape: dict[str, Any] = SHAPE | {"vocab_size": VOCABULARY}
    LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_job(
    folder: Path,
    model_dir: Path,
    options: dict[str, Any],
    changed: Mapping[int, dict[str, Any]] | None = None,
    start_dir: Path | None = None,
) -> TrainJob:
    """A training of four rows, one a step, some of them with other columns; the rows are those of `options["method"]`."""
    rows = [
        build_row(options["method"], number) | {"trajectory_id": f"q{number}-0"} | (changed or {}).get(number, {})
        for number in range(NUM_ROWS)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "validation.jsonl").write_text("")
    defaults = {"epochs": 1, "batch_size": 1, "checkpoint_steps": 1, "dtype": "float32", "device": "cpu", "warmup_ratio": 0}
    return describe_job(FinetuneConfig.model_validate(defaults | options), model_dir, folder, start_dir=start_dir)


def describe_job(
    config: FinetuneConfig, model_dir: Path, rows_dir: Path, *image_dirs: Path, start_dir: Path | None = None
) -> TrainJob:
    """A training in one process and thread, without Ray."""
    paths = (rows_dir / "train.jsonl", rows_dir / "validation.jsonl")
    return TrainJob(config, str(model_dir), *paths, image_dirs, use_gpu=False, num_workers=1, num_threads=1, start_dir=start_dir)


def build_row(method: str, number: int) -> dict[str, Any]:
    """A row of each method; of a question's two scored replies, or pages, one comes after the other."""
    question = number // 2 if method in ("reward", "rerank") else number
    replies = [f"<search>{words}</search>" for words in ("thing", "somewhere else")]
    prompt = [{"role": "user", "content": f"Where is thing {question}?"}]
    if method == "dpo":
        chosen, rejected = ([{"role": "assistant", "content": reply}] for reply in replies)
        return {"prompt": prompt, "chosen": chosen, "rejected": rejected}
    if method == "rerank":
        return {"question": prompt[0]["content"], "passage": f"Thing {number} is here.", "is_evidence": number % 2 == 0}
    reply = replies[number % 2]
    row = {"prompt": prompt, "completion": [{"role": "assistant", "content": reply}]}
    of_method = {
        "sft": {},
        "reward": {"score": 1.0 - number % 2},
        "grpo": {"advantage": 0.5 - number % 2, "completion_token_ids": load_shared_tokenizer().encode(reply)},
    }
    return row | of_method[method]


def describe_descent(folder: Path, batch_size: int, accumulation: int, **options: Any) -> SFTConfig:
    """Options of plain gradient descent: the first step takes the gradient away from the weights, and nothing else."""
    options = {"save_strategy": "no", "learning_rate": 1.0} | options
    return SFTConfig(
        output_dir=str(folder),
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
        optim="sgd",
        max_grad_norm=0.0,
        logging_steps=1,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        report_to="none",
        disable_tqdm=True,
        **options,
    )
