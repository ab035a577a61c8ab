"""Arguments of transformers and PEFT that the options pass on by name: which there are, and what becomes of a refusal."""

import difflib
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Literal, get_args, get_type_hints

from drag_ray.errors import ConfigError, DragRayError, TrainError
from drag_ray.extras import explain_missing
from drag_ray.storage.json_text import parse_json

_NUMBER_OR_SWITCH = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?|true|false")
_REFUSALS = (ImportError, TypeError, ValueError)
_STAGE = "the stage itself"
_SET_BY = {
    "arguments": {
        r"num_train_epochs": "finetune.epochs",
        r"per_device_\w+|auto_find_batch_size": "finetune.batch_size",
        r"gradient_accumulation_steps": "finetune.gradient_accumulation",
        r"learning_rate": "finetune.learning_rate",
        r"warmup_\w+": "finetune.warmup_ratio",
        r"gradient_checkpointing": "finetune.gradient_checkpointing",
        r"seed|data_seed": "finetune.seed",
        r"(bf|fp)16\w*": "finetune.dtype",
        r"use_cpu": "finetune.device",
        r"deepspeed|fsdp\w*": "finetune.deepspeed",
        r"\w*liger_kernel\w*": "finetune.liger",
        r"(save|eval|logging|load_best)_\w+": "finetune.checkpoint_steps",
        # The losses are not those of transformers, and read no label_smoothing_factor.
        r"output_dir|label_\w+|include_\w+|remove_unused_columns|disable_tqdm|resume_from_checkpoint|ignore_data_skip": _STAGE,
        r"push_to_hub|hub_\w+|do_\w+|local_rank|prediction_loss_only|ddp_find_\w+": _STAGE,
        r"dataloader_(num_workers|persistent_workers|pin_memory)": _STAGE,
    },
    "lora": {
        r"r": "finetune.lora_r",
        r"lora_alpha": "finetune.lora_alpha",
        r"lora_dropout": "finetune.lora_dropout",
        r"target_modules": "finetune.target_modules",
        r"exclude_modules|task_type|peft_\w+|auto_mapping|base_model_name_or_path|revision|inference_mode": _STAGE,
    },
}


def read_named(option: Literal["arguments", "lora"], named: dict[str, Any]) -> dict[str, Any]:
    """The arguments, with numbers and switches where a command line has texts of them; an argument that is a text stays one."""
    texts = {name: value for name, value in named.items() if isinstance(value, str) and _NUMBER_OR_SWITCH.fullmatch(value)}
    known = _list_known(option)[1] if texts else {}
    return named | {name: parse_json(text) for name, text in texts.items() if known.get(name, set()) & {int, float, bool}}


def check_named(option: Literal["arguments", "lora"], named: Mapping[str, Any]) -> None:
    """Refuse names that there are not, and those of arguments that are set otherwise. Raises ConfigError: says which, and the
    nearest one or the option to use."""
    if not named:
        return
    library, known = _list_known(option)
    for name in named:
        for pattern, option_of_ours in _SET_BY[option].items():
            if re.fullmatch(pattern, name):
                raise ConfigError(f"finetune.{option}: {name} is set by {option_of_ours}. Leave it out here.")
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise ConfigError(f"finetune.{option}: {library}, as installed, has no argument {name!r}.{hint}")


@explain_missing()
def _list_known(option: str) -> tuple[str, dict[str, set[Any]]]:
    """The library, and its arguments with their types."""
    # They load PyTorch, which takes seconds, and is done only for who names some.
    if option == "lora":
        from peft import LoraConfig as Arguments
    else:
        from transformers import TrainingArguments as Arguments
    hints = get_type_hints(Arguments)
    library = "PEFT" if option == "lora" else "transformers"
    return library, {field.name: _list_types(hints[field.name]) for field in fields(Arguments) if field.init}


def _list_types(hint: Any) -> set[Any]:
    return set[Any]().union(*map(_list_types, get_args(hint))) if get_args(hint) else {hint}


@contextmanager
def explain_refusal(option: str, given: Any, kinds: tuple[type[Exception], ...] = _REFUSALS, remedy: str = "") -> Generator[None]:
    """Turn what a library says against arguments, or of a package that is missing, into a TrainError that names the option."""
    try:
        yield
    except kinds as error:
        if not given or isinstance(error, DragRayError):
            raise
        raise TrainError(f"finetune.{option} {given}: {error}{remedy}") from error


def check_reporting(report_to: str | list[str] | None) -> None:
    """ValueError or ImportError for a tracker that transformers does not know, or that lacks what it says itself."""
    from transformers.integrations.integration_utils import get_reporting_integration_callbacks

    for tracker in get_reporting_integration_callbacks(report_to):
        try:
            tracker()
        except RuntimeError as error:
            raise ImportError(f"{error} It is needed on every node.") from None
