"""Adapters that can be told from one another, and what PEFT makes of them: the reference of an engine's replies."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import peft
import torch

from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.engine.models.pretrained import load_model


@cache
def _load_base(model: str = "") -> Any:
    """A model, the embedded one unless another is named, in float32: half a GiB, once for all adapters, which are put into it and
    taken out again."""
    return load_model(model or embedded_model_dir(), "float32").eval()


def make_adapter(folder: Path, seed: int, model: str = "") -> str:
    """An adapter of a model (see `_load_base`) with random weights, strong enough to be told from another one; returns its
    folder."""
    base = _load_base(model)
    torch.manual_seed(seed)
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False)
    adapted: Any = peft.get_peft_model(base, config)
    adapted.save_pretrained(str(folder))
    adapted.unload()
    return str(folder)


def compute_logprobs(adapter: str, prompt_token_ids: Sequence[int], token_ids: Sequence[int], model: str = "") -> torch.Tensor:
    """The log-probabilities that PEFT gives the tokens of a reply, with the adapter of a folder or, where that is empty, none."""
    base = _load_base(model)
    adapted: Any = peft.PeftModel.from_pretrained(base, adapter).eval() if adapter else base
    with torch.no_grad():
        logits = adapted(torch.tensor([[*prompt_token_ids, *token_ids]])).logits[0, len(prompt_token_ids) - 1 : -1]
    if adapter:
        adapted.unload()
    return logits.log_softmax(-1).gather(1, torch.tensor(token_ids)[:, None])[:, 0]
