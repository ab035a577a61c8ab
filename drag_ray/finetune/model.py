"""Loading a base model, its tokenizer and its processor for training and merging."""

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
    ProcessorMixin,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

_PROCESSOR_MARKS = ("preprocessor_config.json", "processor_config.json")


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


def load_processor(model: str | Path) -> Any | None:
    """What makes inputs of texts and images for a vision-language model; None if the model takes text alone."""
    if Path(model).is_dir() and not any((Path(model) / mark).exists() for mark in _PROCESSOR_MARKS):
        return None
    processor = AutoProcessor.from_pretrained(model)
    return processor if isinstance(processor, ProcessorMixin) else None
