"""Whether an engine can take its adapter, found out before an engine starts: vLLM would die of it, minutes later."""

from pathlib import Path

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.embedded import resolve_model
from drag_ray.errors import ConfigError, TrainError
from drag_ray.finetune.adapter import (
    ADAPTER_WEIGHTS_NAME,
    check_adapter_fits,
    check_adapter_writes,
    read_base_model,
    read_rank,
)


def check_adapter(config: EngineConfig) -> None:
    """Refuse an adapter that is none, that writes nothing, that belongs to another model, or whose rank is above `max_lora_rank`.

    Raises:
        ConfigError: says which of them, and what to do.
    """
    if not config.adapter:
        return
    folder = Path(config.adapter)
    try:
        rank = read_rank(folder)
        check_adapter_writes(folder)
        check_adapter_fits(read_base_model(resolve_model(config.model), config.model), folder)
    except TrainError as error:
        raise ConfigError(f"engine.adapter {config.adapter!r}: {error}") from error
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"engine.adapter {config.adapter!r}: its adapter_config.json is not that of a LoRA adapter ({error!r}). "
            "Give a folder that finetune or PEFT has written."
        ) from error
    if rank > config.max_lora_rank:
        raise ConfigError(
            f"engine.adapter {config.adapter!r}: has rank {rank}, engine.max_lora_rank is {config.max_lora_rank}. Raise it."
        )
    if not (folder / ADAPTER_WEIGHTS_NAME).is_file():
        raise ConfigError(
            f"engine.adapter {config.adapter!r}: has no {ADAPTER_WEIGHTS_NAME}. Run finetune again or copy it again."
        )
