"""The outputs of the finetune stage, for those that read them: an adapter, a merged model, a whole model, an encoder, the
learning curve."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drag_ray.engine.models.adapter import ADAPTER_CONFIG_NAME, is_reranker, is_reward_model
from drag_ray.storage.file_access import reading
from drag_ray.storage.json_text import parse_json

if TYPE_CHECKING:
    from drag_ray.agent.record import AgentRecord
    from drag_ray.finetune.config import FinetuneConfig
    from drag_ray.finetune.methods.encoder import Probe

ADAPTER_DIR_NAME = "adapter"
MERGED_DIR_NAME = "merged"
MODEL_DIR_NAME = "model"
ENCODER_DIR_NAME = "encoder"
CURVE_NAME = "curve.jsonl"
TUNED_NAME = "tuned"
"""What the base model with a run's own adapter is called, in reports and in requests."""


@dataclass(frozen=True)
class Description:
    """A description of what was trained beside its weights: its options and counts, what it was trained from, how an adapter is
    asked, the options that its rows were written with (none where they are of elsewhere), and what an encoder has scored."""

    settings: "FinetuneConfig"
    counts: dict[str, Any]
    fingerprints: dict[str, str]
    record: "AgentRecord | None"
    row_options: dict[str, Any] = field(default_factory=dict)
    probe: "Probe | None" = None

    @property
    def index_fingerprint(self) -> str:
        """That of the index that its rows are of; empty where nobody knows."""
        return self.record.index_fingerprint if self.record else ""


def find_adapter(finetune_dir: Path | None) -> Path | None:
    """The folder of the adapter, None before there is one; None too for a stage that was never started."""
    adapter_dir = finetune_dir / ADAPTER_DIR_NAME if finetune_dir else None
    return adapter_dir if adapter_dir and (adapter_dir / ADAPTER_CONFIG_NAME).is_file() else None


def find_merged(finetune_dir: Path | None) -> Path | None:
    """The folder of the model that the adapter was merged into, None without one."""
    merged_dir = finetune_dir / MERGED_DIR_NAME if finetune_dir else None
    return merged_dir if merged_dir and merged_dir.is_dir() else None


def find_model(finetune_dir: Path | None) -> Path | None:
    """The folder of the model whose own weights were trained, None without one."""
    model_dir = finetune_dir / MODEL_DIR_NAME if finetune_dir else None
    return model_dir if model_dir and model_dir.is_dir() else None


def has_reward_model(finetune_dir: Path | None) -> bool:
    """True if the stage has trained a reward model, which writes nothing. Raises TrainError where the adapter cannot be read."""
    adapter_dir = find_adapter(finetune_dir)
    return adapter_dir is not None and is_reward_model(adapter_dir)


def find_reranker(finetune_dir: Path | None) -> Path | None:
    """The folder of the adapter or the encoder that was trained to rank pages; None where the stage has trained none."""
    trained = find_adapter(finetune_dir) or find_encoder(finetune_dir)
    return trained if trained and is_reranker(trained) else None


def find_encoder(finetune_dir: Path | None) -> Path | None:
    """The folder of the trained encoder, None without one."""
    encoder_dir = finetune_dir / ENCODER_DIR_NAME if finetune_dir else None
    return encoder_dir if encoder_dir and encoder_dir.is_dir() else None


def read_curve(finetune_dir: Path | None) -> list[dict[str, Any]]:
    """The points of the learning curve, as `curve.build_curve` makes them; none where nothing was trained."""
    path = finetune_dir / CURVE_NAME if finetune_dir else None
    if path is None or not path.is_file():
        return []
    with reading(path):
        return [parse_json(line) for line in path.read_bytes().splitlines()]
