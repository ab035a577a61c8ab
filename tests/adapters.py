"""Adapters that can be told from one another, and what PEFT makes of them: the reference of an engine's replies."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import peft
import torch
from transformers import AutoModelForCausalLM

from drag_ray.engine.models.embedded import embedded_model_dir


@cache
def _load_base() -> Any:
    """The embedded model in float32: half a GiB, once for all adapters, which are put into it and taken out again."""
    return AutoModelForCausalLM.from_pretrained(embedded_model_dir(), dtype=torch.float32).eval()


def make_adapter(folder: Path, seed: int) -> str:
    """An adapter of the embedded model with random weights, strong enough to be told from another one; returns its folder."""
    base = _load_base()
    torch.manual_seed(seed)
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False)
    adapted: Any = peft.get_peft_model(base, config)
    adapted.save_pretrained(str(folder))
    adapted.unload()
    return str(folder)


def compute_logprobs(adapter: str, prompt_token_ids: Sequence[int], token_ids: Sequence[int]) -> torch.Tensor:
    """The log-probabilities that PEFT gives the tokens of a reply, with the adapter of a folder or, where that is empty, none."""
    model: Any = peft.PeftModel.from_pretrained(_load_base(), adapter).eval() if adapter else _load_base()
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt_token_ids, *token_ids]])).logits[0, len(prompt_token_ids) - 1 : -1]
    if adapter:
        model.unload()
    return logits.log_softmax(-1).gather(1, torch.tensor(token_ids)[:, None])[:, 0]
