"""Loading a base model and its tokenizer for training and merging."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING


def load_model(model: str | Path, dtype: str) -> Any:
    """The base model with weights of `dtype` (`bfloat16`, `float32`); a vision-language model keeps its vision part."""
    config = AutoConfig.from_pretrained(model)
    is_text_model = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    auto_class = AutoModelForCausalLM if is_text_model else AutoModelForImageTextToText
    return auto_class.from_pretrained(model, dtype=getattr(torch, dtype))


def load_tokenizer(model: str | Path) -> Any:
    """The model's tokenizer, able to pad."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
