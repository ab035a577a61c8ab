"""The folder of the trained adapter, made from the last checkpoint: its weights, what it was trained on, how it is asked."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drag_ray.agent.record import AgentRecord, write_record
from drag_ray.engine.models.adapter import read_base_model, write_base_model
from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.finetune.card import write_card
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.outcome import ADAPTER_DIR_NAME, MERGED_DIR_NAME
from drag_ray.storage.file_access import list_folder, writing

_ADAPTER_FILES = (
    "adapter_*",
    "tokenizer*",
    "chat_template*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges*",
)


@dataclass(frozen=True)
class Description:
    """What is known of an adapter beside its weights: its options and counts, what it was trained from, how it is asked, and the
    options that its rows were written with (none where they are of elsewhere)."""

    settings: FinetuneConfig
    counts: dict[str, Any]
    fingerprints: dict[str, str]
    record: AgentRecord | None
    row_options: dict[str, Any] = field(default_factory=dict)


def publish_adapter(checkpoint_dir: Path, model: str, described: Description, start_dir: Path | None, stage_dir: Path) -> None:
    """Take the adapter out of a whole checkpoint, check, describe and merge it. Its folder is there only when it is whole.

    Raises:
        ArtifactError: no space is left, or the folder cannot be written.
        NotFiniteError: a weight is not finite.
        TrainError: the adapter has learned nothing, or cannot be merged.
    """
    from drag_ray.engine.models.adapter_weights import check_weights  # PyTorch takes seconds to import

    base_dir = resolve_model(model)
    adapter_dir = stage_dir / ADAPTER_DIR_NAME
    scratch_dir = stage_dir / f".{ADAPTER_DIR_NAME}"
    with writing(adapter_dir):
        for leftover in (adapter_dir, scratch_dir):
            if leftover.exists():
                shutil.rmtree(leftover)
        scratch_dir.mkdir()
        for path in list_folder(checkpoint_dir):
            if any(path.match(pattern) for pattern in _ADAPTER_FILES):
                shutil.copy2(path, scratch_dir)
        check_weights(scratch_dir, start_dir)
        base, settings = read_base_model(base_dir, name=model), described.settings
        write_base_model(scratch_dir, base)
        if described.record and settings.chosen_method.is_asked_as_agent:
            write_record(scratch_dir, described.record)
        fingerprint = described.record.index_fingerprint if described.record else ""
        settings.chosen_method.write_note(scratch_dir, described.row_options, fingerprint)
        write_card(scratch_dir, settings, base, described.counts, described.fingerprints)
        scratch_dir.rename(adapter_dir)
        if settings.merge:
            from drag_ray.finetune.merge import merge_adapter  # PEFT takes more

            merge_adapter(base_dir, adapter_dir, stage_dir / MERGED_DIR_NAME, settings.merged_dtype)
