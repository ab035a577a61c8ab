"""Location of a reranker's weights and tokenizer, and its kind."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from drag_ray.engine.models.adapter import (
    ADAPTER_CONFIG_NAME,
    check_adapter_changes,
    check_adapter_fits,
    read_base_model,
    read_noted_name,
)
from drag_ray.engine.models.model_folder import refuse_missing, resolve_model
from drag_ray.engine.models.relevance import RerankerNote, read_note
from drag_ray.errors import ConfigError, DataError, TrainError
from drag_ray.search.config import RerankConfig
from drag_ray.search.index import read_fingerprint
from drag_ray.storage.object_store import is_uri


@dataclass(frozen=True)
class RerankerFiles:
    """Of a model.

    Attributes:
        config: how it is asked, with the instruction that it was trained with.
        source: folder or name of its weights and tokenizer.
        adapter_dir: of the adapter that goes on them, if it is one.
        is_causal: it is asked for yes or no; the others classify pairs of texts.
        page_chars: characters of a page that it is to be given; 0 for all.
        index_fingerprint: of the index that it was trained for; empty where nobody knows.
    """

    config: RerankConfig
    source: str
    adapter_dir: Path | None
    is_causal: bool
    page_chars: int
    index_fingerprint: str = ""


def find_files(config: RerankConfig) -> RerankerFiles:
    """The files of a model. Its weights are not loaded, but those of an adapter are looked at. Raises ConfigError where there is
    no such model, or it is of a kind that scores no pairs of texts, or an adapter is none that was trained for that, belongs to
    another base model, or changes nothing of it or breaks it."""
    folder = Path(config.model).expanduser()
    try:
        note = read_note(folder)
        if not (folder / ADAPTER_CONFIG_NAME).is_file():
            source, note = resolve_model(config.model), note or RerankerNote()
            page_chars = note.page_chars if config.page_chars is None else config.page_chars
            return RerankerFiles(config, source, None, _is_causal(config, source), page_chars, note.index_fingerprint)
        if note is None:
            raise ConfigError(
                f"{config.section}.model {config.model!r}: an adapter that was not trained to rank. Train one: "
                "python jobs/finetune.py --scope reranker --finetune.method rerank"
            )
        source = resolve_model(config.base or _read_local_name(folder, config.section))
        check_adapter_fits(read_base_model(source), folder)
        check_adapter_changes(folder)
    except (DataError, TrainError) as error:
        raise ConfigError(f"{config.section}.model {config.model!r}: {error}") from None
    page_chars = note.page_chars if config.page_chars is None else config.page_chars
    config = config.model_copy(update={"instruction": note.instruction})
    return RerankerFiles(config, source, folder, _is_causal(config, source), page_chars, note.index_fingerprint)


def describe_other_index(files: RerankerFiles, index_dir: Path) -> str:
    """The words that a reranker was trained for another index than the one whose pages it is to put in order, or for nobody knows
    which; empty where it was trained for this one. Raises SearchIndexError where the index is none that can be read."""
    trained, searched = files.index_fingerprint, read_fingerprint(index_dir)
    if trained == searched:
        return ""
    known = f"was trained for another index ({trained}) than is searched ({searched})"
    unknown = f"has no note that it was trained for the index that is searched ({searched})"
    return (
        f"rerank.model {files.config.model!r} {known if trained else unknown}. On another collection it can put pages in "
        "a far worse order than the search has them in (docs/train/rankers.md): compare `rerank` with `question` in an "
        "evaluation, or train one for this index."
    )


def _read_local_name(folder: Path, section: str) -> str:
    """The base model that an adapter's folder names, on this machine or the Hugging Face Hub. Raises ConfigError where it names
    one in an object store."""
    name = read_noted_name(folder)
    if is_uri(name):
        raise ConfigError(
            f"{section}.model {str(folder)!r}: its folder names a base model in an object store, {name[:200]!r}, which is not "
            f"fetched on its word. If it is yours, say so: {section}.base with that place."
        )
    return name


def _is_causal(config: RerankConfig, source: str) -> bool:
    try:
        found: Any = AutoConfig.from_pretrained(source)
        [architecture] = found.architectures or [""]
    except (OSError, ValueError, KeyError) as error:
        raise refuse_unreadable(config, error) from None
    if architecture.endswith("ForCausalLM"):
        return True
    if architecture.endswith("ForSequenceClassification") and found.num_labels <= 2:
        return False
    raise ConfigError(
        f"{config.section}.model {config.model!r}: is a {architecture or 'model of no kind'} of {found.num_labels} labels; "
        "expected a causal model, or one that classifies sequences, with one label or two, for example BAAI/bge-reranker-v2-m3."
    )


def refuse_unreadable(config: RerankConfig, error: Exception) -> ConfigError:
    """The error for a model that cannot be read."""
    option = f"{config.section}.model"
    if not Path(config.model).expanduser().exists():
        return refuse_missing(option, config.model, error)
    return ConfigError(f"{option} {config.model!r}: cannot be read as a model ({error}).")
