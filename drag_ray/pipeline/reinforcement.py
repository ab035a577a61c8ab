"""Reinforcement learning at the end of a pipeline: from the adapter that was trained before, beside which it is evaluated."""

from collections.abc import Callable, Sequence
from pathlib import Path

from drag_ray.errors import ConfigError
from drag_ray.finetune.training_folder import ADAPTER_DIR_NAME, TUNED_NAME
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import check_stages, run_stages
from drag_ray.pipeline.stages import STAGES
from drag_ray.stage_runs.address import Address
from drag_ray.storage.artifacts import Manifest

_RL = STAGES["rl"]
_SHAPE = ("lora_r", "lora_alpha", "target_modules", "lora")
"""Options that an adapter has for good."""


def locate_adapter(config: RunConfig, address: Address) -> Path:
    """The adapter that a stage of the run leaves."""
    return (address.locate(config.run_dir) / ADAPTER_DIR_NAME).resolve()


def build_reinforcement(config: RunConfig, start: Address) -> RunConfig:
    """The options of the stage rl: the run's own, with the adapter of a finetune stage to go on from. Raises ConfigError where
    that makes none that could be gone on from, or rl cannot be run with them."""
    if not config.finetune.chosen_method.trains_policy:
        raise ConfigError(
            f"reinforce: finetune.method {config.finetune.method} trains no policy, so rl has no adapter to continue. Choose "
            "sft, dpo or grpo, or leave out reinforce."
        )
    engine = config.engine.model_copy(update={"adapter": str(locate_adapter(config, start))})
    # Rounds may each begin anew, and this goes on. It has no trainer of transformers, which the arguments are of.
    finetune = config.finetune.model_copy(update={"start": "policy", "arguments": {}})
    changed = config.model_copy(update={"engine": engine, "finetune": finetune})
    check_stages([_RL], changed)
    return changed


def check_shapes(config: RunConfig, rounds: Sequence[RunConfig]) -> None:
    """ConfigError where a round would train an adapter of another shape than the stage rl goes on with."""
    for number, own in enumerate(rounds, start=1):
        differing = [name for name in _SHAPE if getattr(own.finetune, name) != getattr(config.finetune, name)]
        if differing:
            raise ConfigError(
                f"reinforce: round {number} has another finetune.{differing[0]} than the run, with which rl goes on from its "
                "adapter. Set it outside of curriculum."
            )


def build_reinforced_evaluation(config: RunConfig, start: Address) -> RunConfig:
    """The options of an evaluation that has the adapter of rl too, beside those that it names or the one that rl began with."""
    settings = config.evaluate
    compared = settings.adapters or (f"{TUNED_NAME}={locate_adapter(config, start)}",)
    own = f"{_RL.name}={locate_adapter(config, Address(_RL.name, scope=config.scope))}"
    return config.model_copy(update={"evaluate": settings.model_copy(update={"adapters": (*compared, own)})})


def reinforce(
    config: RunConfig, compared: RunConfig, start: Address, start_ray: Callable[[], object]
) -> tuple[dict[str, Manifest], RunConfig]:
    """Run the stage rl where the pipeline asks for it; what is finished is skipped. Returns its manifest by its address, and
    `compared` with its adapter; nothing and the same where nobody asks. Raises ConfigError: as `build_reinforcement` does.

    Args:
        config: of the run.
        compared: of the stages that compare what was trained.
        start: the finetune stage whose adapter rl goes on from.
        start_ray: see `run_stages`.
    """
    if not config.reinforce:
        return {}, compared
    return run_stages([_RL], build_reinforcement(config, start), start_ray), build_reinforced_evaluation(compared, start)
