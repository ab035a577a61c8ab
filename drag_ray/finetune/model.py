"""Loading a base model, its tokenizer and its processor for training and merging."""

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSequenceClassification,
    AutoProcessor,
    AutoTokenizer,
    ProcessorMixin,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
from trl.trainer.reward_trainer import suppress_seqcls_warning

from drag_ray.errors import TrainError

_PROCESSOR_MARKS = ("preprocessor_config.json", "processor_config.json")


def load_model(model: str | Path, dtype: str) -> Any:
    """The base model with weights of `dtype` (`bfloat16`, `float32`); a vision-language model keeps its vision part."""
    config = AutoConfig.from_pretrained(model)
    is_text_model = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    auto_class = AutoModelForCausalLM if is_text_model else AutoModelForImageTextToText
    return auto_class.from_pretrained(model, dtype=getattr(torch, dtype))


def load_reward_model(model: str | Path, dtype: str) -> Any:
    """The base model with a head that makes one number of a conversation, in the place of the one that writes.

    The head is new and knows nothing, unless the folder holds a reward model already. Types are those of `load_model`.

    Raises:
        TrainError: transformers has no such head for this kind of model; for vision-language models it has none.
    """
    config = AutoConfig.from_pretrained(model)
    if type(config) not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        raise TrainError(
            f"finetune.format reward: {str(model)!r} is a {config.model_type} model, which transformers cannot give a reward "
            "head. Name a text model as engine.model, for example Qwen/Qwen3-8B."
        )
    # The head reads the last token that is no padding.
    config.get_text_config().pad_token_id = load_tokenizer(model).pad_token_id
    config.num_labels = 1
    with suppress_seqcls_warning():
        return AutoModelForSequenceClassification.from_pretrained(model, config=config, dtype=getattr(torch, dtype))


def holds_reward_model(folder: Path) -> bool:
    """Whether the model in the folder has a head for rewards."""
    architectures = AutoConfig.from_pretrained(folder).architectures or []
    return any(name.endswith("ForSequenceClassification") for name in architectures)


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
