"""The outputs of the finetune stage, for those that read them: an adapter, a merged model, the learning curve."""

from pathlib import Path
from typing import Any

from drag_ray.engine.models.adapter import ADAPTER_CONFIG_NAME, is_reranker, is_reward_model
from drag_ray.storage.file_access import reading
from drag_ray.storage.json_text import parse_json

ADAPTER_DIR_NAME = "adapter"
MERGED_DIR_NAME = "merged"
CURVE_NAME = "curve.jsonl"
TUNED_NAME = "tuned"
"""What the base model with a run's own adapter is called, in reports and in requests."""


def find_adapter(finetune_dir: Path | None) -> Path | None:
    """The folder of the adapter, None before there is one; None too for a stage that was never started."""
    adapter_dir = finetune_dir / ADAPTER_DIR_NAME if finetune_dir else None
    return adapter_dir if adapter_dir and (adapter_dir / ADAPTER_CONFIG_NAME).is_file() else None


def find_merged(finetune_dir: Path | None) -> Path | None:
    """The folder of the model that the adapter was merged into, None without one."""
    merged_dir = finetune_dir / MERGED_DIR_NAME if finetune_dir else None
    return merged_dir if merged_dir and merged_dir.is_dir() else None


def has_reward_model(finetune_dir: Path | None) -> bool:
    """True if the stage has trained a reward model, which writes nothing.

    Raises:
        TrainError: the adapter cannot be read.
    """
    adapter_dir = find_adapter(finetune_dir)
    return adapter_dir is not None and is_reward_model(adapter_dir)


def find_reranker(finetune_dir: Path | None) -> Path | None:
    """The folder of the adapter that was trained to rank pages; None where the stage has trained another one, or none."""
    adapter_dir = find_adapter(finetune_dir)
    return adapter_dir if adapter_dir and is_reranker(adapter_dir) else None


def read_curve(finetune_dir: Path | None) -> list[dict[str, Any]]:
    """The points of the learning curve, as `curve.build_curve` makes them; none where nothing was trained."""
    path = finetune_dir / CURVE_NAME if finetune_dir else None
    if path is None or not path.is_file():
        return []
    with reading(path):
        return [parse_json(line) for line in path.read_bytes().splitlines()]
