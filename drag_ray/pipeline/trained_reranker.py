"""The reranker that a pipeline trains beside its policy: from the same questions, in folders of its own, evaluated with both."""

from collections.abc import Callable
from typing import Any

from drag_ray.baselines.rerank import Rerank, RerankedConfig
from drag_ray.config import override
from drag_ray.errors import ConfigError
from drag_ray.finetune.outcome import ADAPTER_DIR_NAME
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import check_stages, list_compared, run_stages
from drag_ray.pipeline.stages import STAGES
from drag_ray.stage_runs.address import Address
from drag_ray.storage.artifacts import Manifest

_STAGES = [STAGES["format"], STAGES["finetune"]]
_OPTIONS: dict[str, dict[str, Any]] = {
    "format": {"formats": ["relevance"]},
    # Who ranks adds the adapter to the model by itself.
    "finetune": {"method": "rerank", "epochs": 1, "merge": False},
}


def build_training(config: RunConfig, process: Address) -> RunConfig:
    """The options of its rows and its training: those of the run with what makes it a reranker, and above them `reranker`.

    Args:
        config: of the run.
        process: whose questions it learns from.

    Raises:
        ConfigError: `reranker` sets an option that there is not, or has another method trained, or cannot be trained so.
    """
    changed = override(override(config, _OPTIONS), config.reranker, "reranker")
    if changed.finetune.method != "rerank":
        raise ConfigError(
            f"reranker: finetune.method {changed.finetune.method} trains no reranker. Leave it out there: it is rerank."
        )
    reads = [entry for entry in config.reads if entry.partition("=")[0] not in ("process", "format")]
    # It starts from the model itself: what a policy has learned is to write.
    engine = changed.engine.model_copy(update={"adapter": ""})
    training = changed.model_copy(
        update={"scope": _find_scope(config), "reads": (*reads, f"process={process}"), "engine": engine}
    )
    check_stages(_STAGES, training)
    return training


def build_evaluation(config: RunConfig) -> RunConfig:
    """The options of an evaluation that has the reranker too.

    Raises:
        ConfigError: they name another one, or a stage that compares cannot be run with it.
    """
    settings = config.evaluate
    options = settings.take(RerankedConfig)
    if options.model:
        raise ConfigError(
            f"evaluate.rerank.model {options.model!r}: the pipeline trains one itself (reranker), which is evaluated. Leave one "
            "of them out."
        )
    adapter_dir = (Address("finetune", scope=_find_scope(config)).locate(config.run_dir) / ADAPTER_DIR_NAME).resolve()
    baselines = settings.baselines if Rerank.name in settings.baselines else (*settings.baselines, Rerank.name)
    update = {"baselines": baselines, "rerank": options.model_copy(update={"model": str(adapter_dir)})}
    evaluation = config.model_copy(update={"evaluate": settings.model_copy(update=update)})
    check_stages(list_compared(config), evaluation)
    return evaluation


def train_reranker(training: RunConfig, start_ray: Callable[[], object] = lambda: None) -> dict[str, Manifest]:
    """Write its rows and train it, as `build_training` says; what is finished is skipped."""
    return run_stages(_STAGES, training, start_ray)


def _find_scope(config: RunConfig) -> str:
    return "/".join(part for part in (config.scope, "reranker") if part)
