"""A base model and an adapter become one model."""

import shutil
from pathlib import Path
from typing import Any

from peft import PeftModel

from drag_ray.engine.models.adapter import check_adapter_fits, is_reward_model, read_base_model
from drag_ray.engine.models.pretrained import load_model, load_processor, load_reward_model, load_tokenizer
from drag_ray.errors import TrainError
from drag_ray.finetune.checkpoints import saving


def merge_adapter(base_dir: str | Path, adapter_dir: Path, out_dir: Path, dtype: str = "bfloat16") -> None:
    """Write the base model with the adapter added to its weights: a folder that transformers and vLLM load by itself.

    It holds config, generation config, weights, tokenizer and chat template, and of a vision-language model
    the processor.  `out_dir` is replaced, and is there only when it is whole.

    Raises:
        ArtifactError: no space is left, or the folder cannot be written.
        TrainError: the adapter belongs to another base model, or merging gives weights that are not finite.
    """
    check_adapter_fits(read_base_model(str(base_dir)), adapter_dir)
    load = load_reward_model if is_reward_model(adapter_dir) else load_model
    adapted = PeftModel.from_pretrained(load(base_dir, dtype), str(adapter_dir))
    try:
        merged: Any = adapted.merge_and_unload(safe_merge=True)
    except ValueError as error:
        raise TrainError(
            f"{adapter_dir}: cannot be merged into {base_dir} ({error}). Train again with a lower finetune.learning_rate."
        ) from None
    scratch_dir = out_dir.with_name(f".{out_dir.name}")
    with saving(out_dir, "Free some space, choose another --run-dir, or leave the merged model out (--no-finetune.merge)."):
        for leftover in (out_dir, scratch_dir):
            if leftover.exists():
                shutil.rmtree(leftover)
        merged.save_pretrained(scratch_dir)
        load_tokenizer(base_dir).save_pretrained(scratch_dir)
        processor = load_processor(base_dir)
        if processor is not None:
            processor.save_pretrained(scratch_dir)
        scratch_dir.rename(out_dir)
