"""Adapters that can be told from one another."""

from pathlib import Path

import peft
import torch
from transformers import AutoModelForCausalLM

from drag_ray.engine.models.embedded import embedded_model_dir


def make_adapter(folder: Path, seed: int) -> str:
    """An adapter of the embedded model with random weights, strong enough to be told from another one; returns its folder."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(embedded_model_dir(), dtype=torch.float32)
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False)
    peft.get_peft_model(model, config).save_pretrained(str(folder))
    return str(folder)
