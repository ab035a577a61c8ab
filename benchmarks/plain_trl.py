"""Fine-tuning as a user of TRL would write it, with LoRA, on rows of a run's folder: `SFTTrainer` with packing, or `DPOTrainer`
where the rows are pairs.

python benchmarks/plain_trl.py OPTIONS

Rows that show images go through TRL's collator for models that see, which does not pack; nor does `DPOTrainer`.

OPTIONS is a JSON object of `PlainOptions`. The last line that it prints is a JSON object too: for each step the seconds since the
start and the tokens read so far, without padding.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TypedDict

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
    TrainerCallback,
)
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from drag_ray.corpus.image_store import ImageStore

_COLUMNS = {"prompt", "completion", "chosen", "rejected"}


class PlainOptions(TypedDict):
    """`model` is a folder, `train_path` a file of rows {prompt, completion, images} or {prompt, chosen, rejected, images},
    `images_dir` the store of the images or ""; the others are TRL's and PEFT's."""

    model: str
    train_path: str
    images_dir: str
    max_length: int
    per_device_train_batch_size: int
    gradient_checkpointing: bool
    use_liger_kernel: bool
    lora_dropout: float
    learning_rate: float
    target_modules: list[str]


class StepTimes(TrainerCallback):
    """Notes the time, the tokens and the loss at the end of each step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if logs and "num_tokens" in logs and "loss" in logs:
            self.steps.append({"seconds": time.perf_counter(), "tokens": logs["num_tokens"], "loss": float(logs["loss"])})


def read_rows(path: Path, images_dir: str) -> Dataset:
    """Prompts and replies as messages, with the images that they show."""

    def flatten(message: dict[str, Any]) -> dict[str, Any]:
        content = message["content"] if images_dir else "".join(part["text"] for part in message["content"])
        return {"role": message["role"], "content": content}

    rows = [json.loads(line) for line in path.read_text().splitlines()]
    made = [{name: list(map(flatten, row[name])) for name in row.keys() & _COLUMNS} for row in rows]
    if images_dir:
        store = ImageStore(Path(images_dir))
        made = [row | {"images": [store.open(key) for key in given["images"]]} for row, given in zip(made, rows, strict=True)]
    return Dataset.from_list(made)


def main() -> None:
    given: PlainOptions = json.loads(sys.argv[1])
    on_gpu, sees = torch.cuda.is_available(), bool(given["images_dir"])
    can_see = hasattr(AutoConfig.from_pretrained(given["model"]), "vision_config")
    kind, reader = AutoModelForImageTextToText if can_see else AutoModelForCausalLM, AutoProcessor if sees else AutoTokenizer
    times, rows = StepTimes(), read_rows(Path(given["train_path"]), given["images_dir"])
    pairs = "chosen" in rows.column_names
    packs: dict[str, Any] = {} if pairs or sees else {"packing": True, "packing_strategy": "bfd"}
    kinds: tuple[Any, Any] = (DPOTrainer, DPOConfig) if pairs else (SFTTrainer, SFTConfig)
    make_trainer, make_arguments = kinds
    with tempfile.TemporaryDirectory() as scratch:
        trainer: Any = make_trainer(
            model=kind.from_pretrained(given["model"], dtype=torch.bfloat16 if on_gpu else torch.float32),
            args=make_arguments(
                **packs,
                output_dir=scratch,
                max_length=given["max_length"] if packs else None,
                per_device_train_batch_size=given["per_device_train_batch_size"],
                gradient_checkpointing=given["gradient_checkpointing"],
                use_liger_kernel=given["use_liger_kernel"],
                learning_rate=given["learning_rate"],
                num_train_epochs=1,
                logging_steps=1,
                save_strategy="no",
                report_to="none",
                bf16=on_gpu,
                use_cpu=not on_gpu,
            ),
            train_dataset=rows,
            processing_class=reader.from_pretrained(given["model"]),
            peft_config=LoraConfig(
                r=16,
                lora_alpha=32,
                lora_dropout=given["lora_dropout"],
                target_modules=given["target_modules"],
                task_type="CAUSAL_LM",
            ),
            callbacks=[times],
        )
        trainer.train()
    print(json.dumps({"steps": times.steps, "attention": trainer.model.config._attn_implementation}))


if __name__ == "__main__":
    main()
