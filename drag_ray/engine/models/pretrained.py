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
    PreTrainedModel,
    ProcessorMixin,
)
from transformers.modeling_layers import GenericForSequenceClassification
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    MODEL_MAPPING,
)
from transformers.utils.quantization_config import BitsAndBytesConfig

from drag_ray.engine.models.model_files import IMAGE_MODULES
from drag_ray.errors import TrainError

_REWARD_SUFFIX = "ForSequenceClassification"
_UNQUANTIZED = ["lm_head", "score", IMAGE_MODULES]
"""Modules that adapters are not for, and that are small beside those that they are for."""
_PROCESSOR_MARKS = ("preprocessor_config.json", "processor_config.json")


def load_model(model: str | Path, dtype: str, quantization: str = "none", *, is_checked: bool = False) -> Any:
    """The base model with weights of `dtype` (`bfloat16`, `float32`); a vision-language model keeps its vision part. Raises
    ImportError where bitsandbytes is not installed, and TrainError where weights are missing.

    Args:
        model: a folder or a name.
        dtype: of all weights, or of those that are not quantised.
        quantization: of the linear layers of the language model, by bitsandbytes: `nf4`, `int8` or `none`.
        is_checked: refuse files in which weights are missing; transformers fills these with random numbers.
    """
    config = AutoConfig.from_pretrained(model)
    is_text_model = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    auto_class: Any = AutoModelForCausalLM if is_text_model else AutoModelForImageTextToText
    options = {"dtype": getattr(torch, dtype), **_quantize(quantization, dtype)}
    loaded, report = auto_class.from_pretrained(model, **options, output_loading_info=True)
    if is_checked and (missing := sorted(report["missing_keys"])):
        raise TrainError(f"{model}: has no {missing[0]}, one of {len(missing)} weights that are missing. Train it again.")
    return loaded


def _quantize(quantization: str, dtype: str) -> dict[str, Any]:
    if quantization == "none":
        return {}
    settings = BitsAndBytesConfig(
        load_in_4bit=quantization == "nf4",
        load_in_8bit=quantization == "int8",
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, dtype),
        llm_int8_skip_modules=_UNQUANTIZED,
    )
    return {"quantization_config": settings}


def load_reward_model(model: str | Path, dtype: str, quantization: str = "none") -> Any:
    """The base model with a reward head (one number a conversation) in place of the language-model head.

    The head is new and knows nothing, unless the folder holds a reward model already. Types are those of `load_model`. Raises
    ImportError: as `load_model`; TrainError where this kind of model can have no such head.
    """
    from trl.trainer.reward_trainer import suppress_seqcls_warning  # which takes a second that no tokenizer should

    config = AutoConfig.from_pretrained(model)
    reward_class = _find_reward_class(config)
    # The head reads the last token that is no padding.
    config.get_text_config().pad_token_id = load_tokenizer(model).pad_token_id
    config.num_labels = 1
    with suppress_seqcls_warning():
        options = {"dtype": getattr(torch, dtype), **_quantize(quantization, dtype)}
        loaded, report = reward_class.from_pretrained(model, config=config, **options, output_loading_info=True)
    # transformers would fill the weights of a body that it does not recognise with random numbers.
    if any(name.startswith(f"{loaded.base_model_prefix}.") for name in report["missing_keys"]):
        raise _build_reward_error(model, config)
    return loaded


def _find_reward_class(config: Any) -> Any:
    """The class of transformers; for a family that has none, as many vision-language ones, its body with the same head."""
    if type(config) in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        return AutoModelForSequenceClassification
    if type(config) not in MODEL_MAPPING:
        raise _build_reward_error(config.name_or_path, config)
    body: Any = MODEL_MAPPING[type(config)]
    family = next(parent for parent in body.__mro__[1:] if issubclass(parent, PreTrainedModel))
    return type(type(config).__name__.replace("Config", _REWARD_SUFFIX), (GenericForSequenceClassification, family), {})


def _build_reward_error(model: str | Path, config: Any) -> TrainError:
    return TrainError(
        f"finetune.method reward: {str(model)!r} is a {config.model_type} model, which transformers cannot give a reward head. "
        "Name another as engine.model, for example Qwen/Qwen3-VL-8B-Instruct."
    )


def holds_reward_model(folder: Path) -> bool:
    """True if the model in the folder has a reward head."""
    if not (folder / "config.json").is_file():  # transformers would take the path for a name on the Hub
        return False
    architectures = AutoConfig.from_pretrained(folder).architectures or []
    return any(name.endswith(_REWARD_SUFFIX) for name in architectures)


def load_tokenizer(model: str | Path) -> Any:
    """The model's tokenizer, able to pad."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_processor(model: str | Path) -> Any | None:
    """The processor of texts and images of a vision-language model; None if the model takes text alone."""
    if Path(model).is_dir() and not any((Path(model) / mark).exists() for mark in _PROCESSOR_MARKS):
        return None
    processor = AutoProcessor.from_pretrained(model)
    return processor if isinstance(processor, ProcessorMixin) else None
