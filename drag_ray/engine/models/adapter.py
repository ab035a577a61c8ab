"""Metadata of an adapter folder, and checks that an engine can take it.

It is found out before an engine starts: vLLM would die of it, minutes later.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.models.model_files import (
    ADAPTER_WEIGHTS_NAME,
    IMAGE_MODULES,
    LANGUAGE_MODELS,
    read_module_names,
    read_object,
    read_shapes,
)
from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.engine.models.relevance import NOTE_NAME
from drag_ray.errors import ConfigError, TrainError
from drag_ray.storage.artifacts import compute_fingerprint, write_json

ADAPTER_CONFIG_NAME = "adapter_config.json"
BASE_NAME = "drag_ray_base.json"
WRITING_TASK, REWARD_TASK = "CAUSAL_LM", "SEQ_CLS"
"""PEFT's names for what an adapter's model does."""

_VOLATILE_KEYS = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache", "quantization_config"}
_HIDDEN_SIZE_INPUTS = re.compile(
    r"layers\.(?P<layer>\d{1,6})\.\w+\.(?P<module>q_proj|k_proj|v_proj|gate_proj|up_proj)\.lora_A\.weight$"
)
_PLAIN_LORA: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal", "mica", "lora_ga"),
    **dict.fromkeys(("use_dora", "lora_bias", "use_qalora"), (False,)),
    **dict.fromkeys(("rank_pattern", "alpha_pattern", "use_bdlora"), ({}, False)),
    **dict.fromkeys(("modules_to_save", "trainable_token_indices", "alora_invocation_tokens", "layer_replication"), ([],)),
}
"""PEFT's options of an adapter that is more than pairs of matrices of one rank and scale, or that changes the base model's own
weights, with the values of one that is not. Of these vLLM 0.26 passes over some that later ones refuse or heed."""
_SERVED_WEIGHT = re.compile(r"\blayers\.\d+\..+\.lora_[AB]\.weight$")
_LORA_END = re.compile(r"\.lora_[AB]\.weight$")
_PEFT_PREFIX = "base_model.model."
_UNSERVED_PART = re.compile(rf"{IMAGE_MODULES}|.*\.mtp\.")


@dataclass(frozen=True)
class BaseModel:
    """The identity of a base model: the name it was asked by, and a fingerprint of its architecture (config.json). `modules`:
    those that have weights, by the names that vLLM takes an adapter for them by; empty where that is not known."""

    name: str
    fingerprint: str
    hidden_size: int
    num_layers: int
    modules: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.name!r} (hidden size {self.hidden_size}, {self.num_layers} layers, config {self.fingerprint})"


def read_base_model(model: str, name: str = "") -> BaseModel:
    """The identity of the model in the folder, or of the Hugging Face name, `model`. Raises TrainError where it has no readable
    config.json."""
    config_path = _find_config(model)
    config = read_object(config_path, "a Hugging Face model folder")
    architecture = {key: value for key, value in config.items() if key not in _VOLATILE_KEYS}
    text_config = config.get("text_config") or config
    shape: list[Any] = [
        text_config.get(key, 0) if isinstance(text_config, dict) else None for key in ("hidden_size", "num_hidden_layers")
    ]
    if not all(isinstance(size, int) for size in shape):
        raise TrainError(f"{model}/config.json: it gives {shape!r:.80} as hidden size and layers, expected two numbers.")
    names = read_module_names(config_path.parent)
    if config.keys() & {"text_config", "vision_config"}:
        names |= {other + found for found in map(_cut_place, names) if found for other in LANGUAGE_MODELS}
    return BaseModel(name or model, compute_fingerprint(architecture), *shape, modules=names)


def _cut_place(name: str) -> str:
    """A module's name within the language model of a multimodal one; empty for what lies beside it."""
    return next((name.removeprefix(place) for place in (*LANGUAGE_MODELS, "model.") if name.startswith(place)), "")


def write_base_model(adapter_dir: Path, base: BaseModel) -> None:
    """Note in an adapter's folder which model it was trained on."""
    write_json(adapter_dir / BASE_NAME, {name: value for name, value in asdict(base).items() if name != "modules"})


def read_noted_name(adapter_dir: Path) -> str:
    """The name of the base model that an adapter was trained on, as finetune has noted it. Raises TrainError where there is no
    such note."""
    return _read_note(adapter_dir).name


def read_base_name(adapter_dir: Path) -> str:
    """The name of the base model that an adapter was trained on, as finetune has noted it or else PEFT. Raises TrainError where
    the folder holds no adapter, or neither says."""
    if (adapter_dir / BASE_NAME).exists():
        return read_noted_name(adapter_dir)
    name = _read_config(adapter_dir).get("base_model_name_or_path")
    if not isinstance(name, str) or not name:
        raise TrainError(f"{adapter_dir}: does not say which model it was trained on. Name it: --model BASE")
    return name


def read_rank(adapter_dir: Path) -> int:
    """The LoRA rank of the adapter. Raises TrainError where the folder holds no adapter."""
    config = _read_config(adapter_dir)
    rank = config.get("r")
    if type(rank) is not int or rank < 1:
        raise TrainError(
            f"{adapter_dir / ADAPTER_CONFIG_NAME}: not that of a LoRA adapter: its rank is {rank!r:.80}, expected 1 or "
            "more. Give a folder that finetune or PEFT has written."
        )
    return rank


def is_reward_model(adapter_dir: Path) -> bool:
    """True if the adapter scores conversations and writes nothing. Raises TrainError where the folder holds no adapter."""
    return _read_config(adapter_dir).get("task_type") == REWARD_TASK


def check_adapter_writes(adapter_dir: Path) -> None:
    """Refuse a reward model or a reranker where a policy is wanted, an adapter of which vLLM would leave a part away, and one
    that changes nothing or breaks what it changes. Raises TrainError where the adapter is one of these, or the folder holds no
    adapter."""
    if is_reward_model(adapter_dir):
        raise TrainError(
            f"{adapter_dir}: a reward model, which scores queries and writes none. Give the adapter of another finetune.method."
        )
    if is_reranker(adapter_dir):
        raise TrainError(
            f"{adapter_dir}: a reranker, which judges pages and writes no query. Give it as "
            "evaluate.rerank.model or serve.rerank.model, and here the adapter of another finetune.method."
        )
    check_adapter_changes(adapter_dir)


def check_adapter_changes(adapter_dir: Path) -> None:
    """Refuse an adapter that is no plain LoRA in safetensors, of which a part would be left away, and one that changes nothing or
    breaks what it changes. Raises TrainError where the adapter is one of these, or the folder holds no adapter."""
    _refuse_unserved_parts(adapter_dir)
    from drag_ray.engine.models.adapter_weights import check_weights  # PyTorch takes seconds to import

    check_weights(adapter_dir)


def is_reranker(adapter_dir: Path) -> bool:
    """True if finetune has trained the adapter to say of pages if they answer a question."""
    return (adapter_dir / NOTE_NAME).is_file()


def list_unserved(options: Mapping[str, Any]) -> list[str]:
    """Those of PEFT's options of an adapter that an engine does not write with: of such a one it takes the merged model alone."""
    return [f"{name} {options[name]!s:.80}" for name, plain in _PLAIN_LORA.items() if options.get(name) not in (None, *plain)]


def _refuse_unserved_parts(adapter_dir: Path) -> None:
    """Refuse parts that vLLM drops with only a warning, or dies of once the model is loaded."""
    config = _read_config(adapter_dir)
    parts = list_unserved(config)
    alpha = config.get("lora_alpha")
    if not isinstance(alpha, int | float) or not math.isfinite(alpha) or not alpha:
        parts.append(f"lora_alpha {alpha!r:.80}")
    weights_path = adapter_dir / ADAPTER_WEIGHTS_NAME
    if not weights_path.is_file():
        raise TrainError(
            f"{adapter_dir}: has no {ADAPTER_WEIGHTS_NAME}, and weights in another form (.bin, .pt) are not read: they are "
            "pickles. Save it with PEFT's save_pretrained, copy it again, or run finetune again."
        )
    shapes, rank = read_shapes(weights_path), read_rank(adapter_dir)
    parts += sorted(name for name in shapes if _UNSERVED_PART.match(name) or not _SERVED_WEIGHT.search(name))
    parts += sorted(f"{name} {shape}" for name, shape in shapes.items() if not _fits_its_pair(name, shapes, rank))
    if parts:
        raise TrainError(
            f"{adapter_dir}: an engine cannot use all of this adapter: {_list_some(parts)}. Expected LoRA matrices of "
            "linear layers of the language model alone: merge it into its base model and give the merged model as engine.model, "
            "or train again with such finetune.target_modules."
        )


def _fits_its_pair(name: str, shapes: Mapping[str, list[int]], rank: int) -> bool:
    """True if a matrix has a partner, both of this rank, for which an engine has room. Those of experts may be put together."""
    module = _LORA_END.sub("", name)
    first, second = (shapes.get(f"{module}.{part}.weight", []) for part in ("lora_A", "lora_B"))
    return ".experts" in name or (len(first) == len(second) == 2 and first[0] == second[1] == rank)


def _list_some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _refuse_absent_modules(base: BaseModel, adapter_dir: Path, targets: Sequence[Any]) -> None:
    """Refuse modules that the base model lacks: vLLM checks only the last part of a name, and passes over a module not found by
    its whole name.

    Of experts it is looked where they lie, since their matrices are put together in one of them and not in another.
    """
    weights_path = adapter_dir / ADAPTER_WEIGHTS_NAME
    weights = read_shapes(weights_path) if weights_path.is_file() else {}
    adapted = {_LORA_END.sub("", name).removeprefix(_PEFT_PREFIX) for name in weights if _SERVED_WEIGHT.search(name)}
    there, adapted = ({name.partition(".experts")[0] for name in names} for names in (base.modules, adapted))
    absent = sorted(adapted - there)
    last_parts = {name.rpartition(".")[2] for name in base.modules} | {"lm_head"}  # that of tied embeddings is in no checkpoint
    absent += [str(name) for name in targets if str(name).rpartition(".")[2] not in last_parts]
    if absent:
        raise TrainError(
            f"{adapter_dir}: {base.name!r} has no such modules as this adapter is made for, and an engine would pass over them: "
            f"{_list_some(absent)}. Set engine.model to the adapter's base model, or train again with other "
            "finetune.target_modules."
        )


def check_adapter_fits(base: BaseModel, adapter_dir: Path) -> None:
    """Refuse an adapter of another base model: by the identity noted in its folder, otherwise by its shapes; and one of modules
    that the base model lacks, where it is known which it has. Raises TrainError: names the adapter, its base model and the base
    model it is to be used with, or the modules."""
    config = _read_config(adapter_dir)
    _refuse_other_base(base, adapter_dir, config)
    if base.modules:
        targets = config.get("target_modules")
        _refuse_absent_modules(base, adapter_dir, targets if isinstance(targets, list) else ())


def _refuse_other_base(base: BaseModel, adapter_dir: Path, config: Mapping[str, Any]) -> None:
    noted = adapter_dir / BASE_NAME
    if noted.exists():
        own_base = _read_note(adapter_dir)
        if own_base.fingerprint == base.fingerprint:
            return
        own_name = str(own_base)
    else:
        hidden_size, num_layers = _read_shape(adapter_dir / ADAPTER_WEIGHTS_NAME)
        if hidden_size in (base.hidden_size, None) and num_layers <= (base.num_layers or math.inf):
            return
        own_name = f"{config.get('base_model_name_or_path')!r} (hidden size {hidden_size}, at least {num_layers} layers)"
    raise TrainError(
        f"{adapter_dir}: this adapter was trained on {own_name}, and cannot be used with {base}. "
        "Set engine.model to the adapter's base model, or run finetune again."
    )


def check_adapter(config: EngineConfig) -> None:
    """Refuse an adapter that is none, that writes nothing, that belongs to another model, or whose rank is above `max_lora_rank`.
    Raises ConfigError: says which of them, and what to do."""
    if not config.adapter:
        return
    folder = Path(config.adapter)
    try:
        rank = read_rank(folder)
        check_adapter_writes(folder)
        check_adapter_fits(read_base_model(resolve_model(config.model), config.model), folder)
    except TrainError as error:
        raise ConfigError(f"engine.adapter {config.adapter!r}: {error}") from error
    if rank > config.max_lora_rank:
        raise ConfigError(
            f"engine.adapter {config.adapter!r}: has rank {rank}, engine.max_lora_rank is {config.max_lora_rank}. Raise it."
        )


def _read_config(adapter_dir: Path) -> dict[str, Any]:
    return read_object(adapter_dir / ADAPTER_CONFIG_NAME, "a PEFT adapter folder")


def _read_note(adapter_dir: Path) -> BaseModel:
    """The base model that finetune has noted in an adapter's folder."""
    noted = read_object(adapter_dir / BASE_NAME, "the folder of an adapter that finetune has written")
    try:
        return BaseModel(**noted)
    except TypeError as error:
        raise TrainError(f"{adapter_dir / BASE_NAME}: not what finetune notes there ({error}). Copy the adapter again.") from None


def _read_shape(weights_path: Path) -> tuple[int | None, int]:
    """(hidden size or None when no layer shows it, layers at least)."""
    hidden_size, num_layers = None, 0
    for key, tensor in read_shapes(weights_path).items():
        found = _HIDDEN_SIZE_INPUTS.search(key)
        if found:
            hidden_size = tensor[-1] if tensor else None
            num_layers = max(num_layers, int(found["layer"]) + 1)
    return hidden_size, num_layers


def _find_config(model: str) -> Path:
    if Path(model).is_dir():
        return Path(model) / "config.json"
    from transformers.utils.hub import cached_file

    try:
        found = cached_file(model, "config.json")
    except OSError as error:
        raise TrainError(f"engine.model {model!r}: neither a folder nor a model that can be had ({error}).") from None
    assert found is not None
    return Path(found)
