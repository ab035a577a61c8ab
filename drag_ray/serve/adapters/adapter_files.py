"""Adapters by their files: those of the options and those that requests name, checked before an engine has them."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.record import AgentRecord, read_record
from drag_ray.engine.models.adapter import BaseModel, check_adapter_fits, check_adapter_writes, read_base_model, read_rank
from drag_ray.errors import DataError, ServeError, TrainError
from drag_ray.evaluate.evaluation_folder import read_index_fingerprint
from drag_ray.finetune.training_folder import MERGED_DIR_NAME, TUNED_NAME, find_adapter, find_merged, find_model
from drag_ray.search.index import read_fingerprint
from drag_ray.serve.config import ADAPTER_NAME, CHAMPION, QUESTION_ALONE, TAKEN_NAMES, ServeConfig
from drag_ray.serve.ingress.limits import RefusalError
from drag_ray.stage_runs.damage import refuse_damage

_VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)

_logger = logging.getLogger(__name__)


def resolve_adapters(config: ServeConfig, finetune_dir: Path | None, model: str) -> dict[str, Path]:
    """Adapter folders by the name that requests use; without any configured, the finetune stage's own as `tuned`, unless the
    model that is served is the stage's. Raises ServeError where an adapter has the name of the base model and DamageError where
    the finetune stage's own is not what was written."""
    adapters = {name: Path(path).resolve() for name, _, path in (entry.partition("=") for entry in config.adapters)}
    if not config.adapters and finetune_dir:
        refuse_damage(finetune_dir, whole=True, quick_folders=(MERGED_DIR_NAME,))
        whole_dir = find_model(finetune_dir)
        if any(found and Path(model).exists() and found.samefile(model) for found in (whole_dir, find_merged(finetune_dir))):
            return {}  # it has learned what the adapter has
        if whole_dir:
            _logger.warning(
                f"serves {model} as it is, and not the whole model that finetune has trained: --engine.model {whole_dir}"
            )
        trained = find_adapter(finetune_dir)
        if trained:
            adapters[TUNED_NAME] = trained.resolve()
    if config.served_name in adapters:
        raise ServeError(
            f"serve.adapters: {config.served_name!r} is the name of the base model. "
            "Choose another name for the adapter, or another serve.served_name."
        )
    return adapters


def resolve_adapter_dirs(config: ServeConfig) -> tuple[Path, ...]:
    """The folders from which adapters may be loaded at run time, as paths that hold no symbolic link. Raises ServeError where one
    is no folder."""
    for folder in config.adapter_dirs:
        if not folder.is_dir():
            raise ServeError(f"serve.adapter_dirs: {str(folder)!r} is no folder. Make it, or name another.")
    return tuple(folder.resolve() for folder in config.adapter_dirs)


def read_adapters(adapters: dict[str, Path], base_dir: str, model: str, host: AgentConfig) -> dict[str, AgentRecord]:
    """Agent records of the adapters that have one.

    What cannot be served is refused here, while that costs little, before an engine starts. Raises ServeError, which names the
    adapter, its base model and the one to be served."""
    base = read_base_model(base_dir, name=model)
    records: dict[str, AgentRecord] = {}
    for name, adapter_dir in adapters.items():
        try:
            if record := _read_checked(adapter_dir, base, host):
                records[name] = record
        except (TrainError, DataError) as error:
            raise ServeError(f"serve.adapters: {name!r}: {error}") from error
    return records


def _read_checked(adapter_dir: Path, base: BaseModel, host: AgentConfig) -> AgentRecord | None:
    """The agent record of an adapter that can be served; None where it has none. Raises TrainError or DataError where it is one
    of another base model, broken, or a reward model, or says in no readable way how it is asked."""
    check_adapter_writes(adapter_dir)
    check_adapter_fits(base, adapter_dir)
    return read_record(adapter_dir, host)


def compute_max_lora_rank(config: ServeConfig, adapters: dict[str, Path]) -> int:
    """The smallest rank that vLLM knows and that every adapter fits into. Raises ServeError where the rank is above vLLM's
    highest, or above the configured one."""
    highest = max((read_rank(path) for path in adapters.values()), default=0)
    wanted = config.max_lora_rank or max(16, highest)
    if highest > wanted:
        raise ServeError(f"serve.max_lora_rank is {wanted}, and an adapter has rank {highest}. Raise it, or leave it at 0.")
    fitting = [rank for rank in _VLLM_RANKS if rank >= wanted]
    if not fitting:
        raise ServeError(f"an adapter rank of {wanted} was asked for; vLLM serves ranks up to {_VLLM_RANKS[-1]}.")
    return fitting[0]


def say_other_origins(index_dir: str, records: Mapping[str, AgentRecord], evaluation: Path | None) -> None:
    """Say in the log which adapters, and whether the evaluation whose findings are used, were made with another index than is
    served.

    A policy may well find pages of another collection, and an index grows; so that is said and not refused. Raises
    SearchIndexError where the index is none that can be read; and ArtifactError or DamageError where the evaluation has not
    finished, or is not what was written."""
    if not index_dir:
        return
    served = read_fingerprint(Path(index_dir))
    made_with = {f"the adapter {name!r} was trained": record.index_fingerprint for name, record in records.items()}
    if evaluation:
        made_with[f"{evaluation} evaluated"] = read_index_fingerprint(evaluation)
    for what, fingerprint in made_with.items():
        if problem := describe_other_index(fingerprint, served):
            _logger.warning(f"{what} with {problem}")


def describe_other_index(made_with: str, served: str) -> str:
    """The warning about something made with an index; empty where it is the one that is served, or not known."""
    if not made_with or not served or made_with == served:
        return ""
    return (
        f"another index ({made_with}) than is served ({served}): other pages, another analyzer or another version of "
        "Tantivy. Its measured worth need not hold here; evaluate it with this index"
    )


@dataclass(frozen=True)
class LoadRequest:
    """An adapter that may be loaded, from the folder in which it really lies; perhaps in place of another one of its name."""

    name: str
    path: str
    replaces: bool
    warning: str = ""


@dataclass(frozen=True)
class AdapterFolders:
    """The folders from which adapters may be loaded while the endpoint runs: those of `config`, absolute and without symbolic
    links. `base` is the model that adapters must be made for, `host` the endpoint's own agent."""

    config: ServeConfig
    base: BaseModel
    host: AgentConfig
    max_rank: int
    index_fingerprint: str = ""

    def check(self, body: dict[str, Any]) -> LoadRequest:
        """The checked request to load an adapter. Raises RefusalError where the name or the folder cannot be, the adapter does
        not fit the base model, or it says in no readable way how it is asked."""
        name, path, replaces = body.get("lora_name"), body.get("lora_path"), body.get("load_inplace", False)
        if not isinstance(name, str) or not isinstance(path, str) or not isinstance(replaces, bool):
            raise RefusalError(
                400, "lora_name and lora_path must be strings, and load_inplace, where it is given, true or false."
            )
        if not re.fullmatch(ADAPTER_NAME, name) or name in (self.config.served_name, *TAKEN_NAMES):
            raise RefusalError(
                400,
                f"lora_name {name[:80]!r}: letters, digits, `_`, `.` and `-`, and neither the base model's name nor "
                f"{QUESTION_ALONE!r} or {CHAMPION!r}.",
            )
        folder = self._resolve(path)
        try:
            record, rank = _read_checked(folder, self.base, self.host), read_rank(folder)
        except (TrainError, DataError) as error:
            raise RefusalError(400, str(error)) from None
        if rank > self.max_rank:
            raise RefusalError(400, f"lora_path {path[:200]!r}: has rank {rank}, and serve.max_lora_rank is {self.max_rank}.")
        other = describe_other_index(record.index_fingerprint, self.index_fingerprint) if record else ""
        return LoadRequest(name, str(folder), replaces, f" It was trained with {other}." if other else "")

    def _resolve(self, path: str) -> Path:
        try:
            folder = Path(path).resolve()
        except (OSError, ValueError, RuntimeError):  # a loop of links, a zero byte
            folder = Path()
        # One answer for all that lies outside, so that nobody learns what is there.
        if not any(folder.is_relative_to(allowed) for allowed in self.config.adapter_dirs):
            raise RefusalError(403, f"lora_path {path[:200]!r} lies in none of the folders of serve.adapter_dirs.")
        return folder
