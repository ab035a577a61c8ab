"""The start of training: a new adapter on the base model, or the one that the policy wrote with, which is trained on.

The reference of DPO and the policy that GRPO compares with are then the base model with that adapter as it was: a frozen
copy of it, which TRL calls `ref`. A new adapter changes nothing yet, and needs no copy: it is left out there.

An adapter is trained on in the shape that it has. With other ranks or layers it would have to become part of the base model
first, and what is trained on that could not be used with the base model alone.
"""

from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from peft.utils.save_and_load import load_peft_weights
from trl.trainer.utils import use_adapter

from drag_ray.errors import TrainError

START_NAME = "ref"
_TRAINED_NAME = "default"

_OPTIONS = {"r": "finetune.lora_r", "lora_alpha": "finetune.lora_alpha", "target_modules": "finetune.target_modules"}
_OF_NO_SHAPE = {
    *("task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode"),
    *("exclude_modules", "lora_dropout", "init_lora_weights", "megatron_config", "megatron_core", "runtime_config"),
}
"""What two adapters of one shape may differ in."""


def load_start(model: Any, adapter: LoraConfig, start_dir: Path, *, in_float32: bool) -> Any:
    """The base model with the adapter in `start_dir`, to be trained on. Raises TrainError where the adapter has another shape, or
    is for other layers.

    Args:
        model: the base model, with a head for rewards perhaps, which then is new.
        adapter: what training makes of it.
        in_float32: give the adapter's weights this type, and not the base model's.
    """
    _check_shape(PeftConfig.from_pretrained(str(start_dir)), adapter, start_dir)
    started: Any = get_peft_model(model, adapter, autocast_adapter_dtype=in_float32)
    new_head = {name: weight for name, weight in get_peft_model_state_dict(started).items() if ".lora_" not in name}
    result = set_peft_model_state_dict(started, new_head | load_peft_weights(str(start_dir), device="cpu"))
    if result.unexpected_keys:
        raise TrainError(
            f"engine.adapter {str(start_dir)!r}: its weights are for layers that the model has not, among them "
            f"{result.unexpected_keys[0]}. Set engine.model to the adapter's base model, or finetune.start to base."
        )
    return started


def _check_shape(found: PeftConfig, wanted: LoraConfig, start_dir: Path) -> None:
    compared = [item.name for item in fields(wanted) if item.name not in _OF_NO_SHAPE]
    values = {name: (_list_value(getattr(found, name, None)), _list_value(getattr(wanted, name))) for name in compared}
    pairs = ((name, _OPTIONS.get(name, "finetune.lora"), *found) for name, found in values.items())
    differing = [f"{name} {own} ({option}: {value})" for name, option, own, value in pairs if own != value]
    if differing:
        raise TrainError(
            f"engine.adapter {str(start_dir)!r}: its weights are trained on in the shape that they have, which differs in "
            f"{', '.join(differing)}. Set these options to the adapter's values, merge it and name the merged model as "
            "engine.model, or train a new adapter on the base model: finetune.start base."
        )


def _list_value(value: Any) -> Any:
    """Sets and other collections in one spelling."""
    return sorted(value) if isinstance(value, set | list | tuple) else value


def keep_start(model: Any) -> None:
    """Keep a frozen copy of the adapter that training starts from, of the same types, as some of TRL's trainers do by themselves.
    `model`: what a trainer was given, whose adapter was trained before."""
    if START_NAME not in model.peft_config:
        model.add_adapter(START_NAME, model.peft_config[_TRAINED_NAME])
    weights = dict(model.named_parameters())
    for name, weight in weights.items():
        if f".{START_NAME}." in name:
            # TRL's copy is of float32 always, and ZeRO-3 gathers weights of one type.
            weight.data = weights[name.replace(f".{START_NAME}.", f".{_TRAINED_NAME}.")].data.clone()


def use_start(model: Any) -> AbstractContextManager[None]:
    """Within it the model is the one that training started from."""
    return use_adapter(model, START_NAME if START_NAME in model.peft_config else None)
