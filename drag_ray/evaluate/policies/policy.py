"""The policies of a comparison: a model with its adapter, or a baseline."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.models.adapter import ADAPTER_CONFIG_NAME, list_unserved
from drag_ray.engine.models.model_files import read_object
from drag_ray.errors import ArtifactError, ConfigError
from drag_ray.evaluate.config import EvaluateConfig, EvaluateSections
from drag_ray.evaluate.effort import Prices
from drag_ray.finetune.training_folder import (
    ADAPTER_DIR_NAME,
    TUNED_NAME,
    find_merged,
    find_model,
    find_reranker,
    has_reward_model,
)

BASE_NAME = "base"
START_NAME = "start"
"""The base model with the adapter that the engine names, with which the run collected."""
PRESET = "greedy"
"""The sampling of every policy."""


def name_beside(model: str, baseline: str) -> str:
    """The name of a policy with the search of a baseline."""
    return f"{model}+{baseline}"


@dataclass(frozen=True)
class ModelPolicy:
    """A policy that an engine writes for.

    Attributes:
        source: the input of the evaluation that its adapter is; empty for the base model. An adapter that the options
            name is an input of its own.
        is_other: it is another model than the one that is trained, so its gain is not in question.
    """

    name: str
    engine: EngineConfig
    source: str = ""
    is_other: bool = False


def choose_models(sections: EvaluateSections, finetune_dir: Path | None, *, has_gpu: bool) -> list[ModelPolicy]:
    """The base model, other models, and the adapters: that of `engine.adapter` as what training started from, those that are
    named, or the run's own; the base model alone where there is none of these that writes.

    Each policy has the one adapter that its name says, whatever adapter the engine names.

    Without a GPU the run's own adapter is taken merged into the model, where `evaluate.merged` allows it: the numbers of
    both forms agree up to rounding, and a dynamic adapter costs several times the time on a CPU. So is one that engines do not
    write with; a whole model that was trained is what it is.

    Raises:
        ConfigError: an adapter is not written as name=folder or is to be used behind an endpoint, or a name is taken twice.
        ArtifactError: an adapter's folder is missing.
    """
    writes = not has_reward_model(finetune_dir) and find_reranker(finetune_dir) is None
    base = sections.engine.model_copy(update={"adapter": ""})
    models = [ModelPolicy(BASE_NAME, base)]
    for name, engine in sections.evaluate.models.items():
        models.append(ModelPolicy(name, engine, f"evaluate.adapters {engine.adapter}" if engine.adapter else "", is_other=True))
    if sections.engine.adapter:
        models.append(ModelPolicy(START_NAME, _with_adapter(base, Path(sections.engine.adapter)), "engine.adapter"))
    for entry in sections.evaluate.adapters:
        name, separator, folder = entry.partition("=")
        if not (name and separator and folder):
            raise ConfigError(f"evaluate.adapters {entry!r}: expected name=folder, for example tuned=runs/demo/finetune/adapter.")
        models.append(ModelPolicy(name, _with_adapter(base, Path(folder)), f"evaluate.adapters {folder}"))
    if not sections.evaluate.adapters and finetune_dir and writes:
        tuned = _tune(base, finetune_dir, takes_merged=sections.evaluate.merged and not has_gpu)
        models.append(ModelPolicy(TUNED_NAME, tuned, "finetune"))
    _refuse_repeated([model.name for model in models] + list(sections.evaluate.baselines))
    return models


def find_prices(settings: EvaluateConfig, models: Sequence[ModelPolicy]) -> Prices:
    """The prices of the evaluation, and those of endpoints for the policies that write there."""
    endpoints = {model.name: model.engine.endpoint for model in models if model.engine.backend == "openai"}
    own = {name: Prices(terms.prompt_price, terms.completion_price) for name, terms in endpoints.items()}
    own = {name: prices for name, prices in own.items() if prices.are_known}
    return Prices(settings.prompt_price, settings.completion_price, own)


def choose_subject(models: Sequence[ModelPolicy], finetune_dir: Path | None = None) -> str:
    """The policy whose gain is in question: the run's own adapter, which of several rounds is that of the best, or else the last
    one, or what training started from; empty where there is neither.
    """
    models = [model for model in models if not model.is_other]
    trained = [model for model in models if model.name not in (BASE_NAME, START_NAME)]
    own = str((finetune_dir / ADAPTER_DIR_NAME).resolve()) if finetune_dir else ""
    adapters = [model.name for model in sorted(trained, key=lambda model: bool(own) and model.engine.adapter == own)]
    started = [model.name for model in models if model.name == START_NAME]
    return next(iter([*adapters[-1:], *started]), "")


def _refuse_endpoint(base: EngineConfig, folder: Path) -> None:
    if base.backend == "openai":
        raise ConfigError(
            f"{folder}: the model {base.model!r} is behind an endpoint, which takes no adapter. Set engine.model to the "
            "adapter's base model, with the backend vllm, and name the endpoint in evaluate.models."
        )


def _tune(base: EngineConfig, finetune_dir: Path, *, takes_merged: bool) -> EngineConfig:
    _refuse_endpoint(base, finetune_dir)
    adapter_config = finetune_dir / ADAPTER_DIR_NAME / ADAPTER_CONFIG_NAME
    takes_merged |= adapter_config.is_file() and bool(list_unserved(read_object(adapter_config, "an adapter's folder")))
    whole_dir = find_model(finetune_dir) or (find_merged(finetune_dir) if takes_merged else None)
    if whole_dir:
        return base.model_copy(update={"model": str(whole_dir.resolve())})
    return _with_adapter(base, finetune_dir / ADAPTER_DIR_NAME)


def _with_adapter(base: EngineConfig, folder: Path) -> EngineConfig:
    _refuse_endpoint(base, folder)
    if not (folder / ADAPTER_CONFIG_NAME).is_file():
        raise ArtifactError(f"{folder}: no LoRA adapter ({ADAPTER_CONFIG_NAME}) there. Run: python jobs/finetune.py")
    return base.model_copy(update={"adapter": str(folder.resolve())})


def _refuse_repeated(names: Sequence[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ConfigError(f"evaluate: the policy name {repeated[0]!r} is given twice. Give each policy a different name.")
