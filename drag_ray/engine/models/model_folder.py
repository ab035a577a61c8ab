"""Location of the files of a model named by an option."""

from pathlib import Path, PurePosixPath

from drag_ray.engine.models.embedded import EMBEDDED, MINILM, embedded_minilm_dir, embedded_model_dir, find_cache
from drag_ray.errors import ConfigError
from drag_ray.storage.artifacts import compute_fingerprint
from drag_ray.storage.file_access import make_private, writing
from drag_ray.storage.object_store import ObjectStore, fetch_files, is_uri

_MARKS = ("config.json", "modules.json")
"""of which a model's folder has one"""
_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
"""What is taken of a model on the Hugging Face Hub: no code, no pickles, and none of the formats of other programs."""


def resolve_model(name: str) -> str:
    """The configured model for vLLM and transformers: folders and names of the Hugging Face Hub as they are.

    `embedded` and `embedded-minilm` become the folders that they are unpacked to, and a place in an object store that of its copy
    on this machine; whoever asks first makes them while others wait.

    Raises:
        ConfigError: there is no such model, or the embedded one cannot be had.
        StorageError: the store does not answer.
        ArtifactError: the disk refuses.
    """
    if name == EMBEDDED:
        return str(embedded_model_dir())
    if name == MINILM:
        return str(embedded_minilm_dir())
    return str(_fetch(name)) if is_uri(name) else name


def resolve_name(model: str) -> str:
    """The name by which a model is found from anywhere: a folder's absolute path, its name on the Hub or its URI."""
    folder = Path(model).expanduser()
    return str(folder.resolve()) if folder.is_dir() else model


def locate_model(model: str, option: str) -> Path:
    """The folder of a model, which is fetched if it is one of the Hugging Face Hub or lies in an object store. Raises ConfigError
    where there is no such model. `option`: that names it."""
    folder = Path(resolve_name(resolve_model(model)))
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=list(_FILES)))
    except (OSError, ValueError) as error:
        raise refuse_missing(option, model, error) from None


def refuse_missing(option: str, model: str, error: Exception) -> ConfigError:
    """The error for a model that is neither here nor on the Hub. `option`: that names it."""
    return ConfigError(
        f"{option} {model!r}: no such folder (is it trained yet?), and no model of the Hugging Face Hub ({error})."
    )


def _fetch(uri: str) -> Path:
    """The copy of a model. It lies under the hash of what is there, so another model at the same place gets a copy of its own."""
    from filelock import FileLock

    states = ObjectStore(uri).list_states()
    if not any(PurePosixPath(state.key).name in _MARKS for state in states):
        raise ConfigError(
            f"{uri}: no {' or '.join(_MARKS)} lies there, so it is no model's folder. Check the URI, and that this machine may "
            "read it."
        )
    folder = find_cache() / "models" / compute_fingerprint(uri, states)
    with writing(folder):
        make_private(folder.parent)
        with FileLock(folder.with_name(f".lock-{folder.name}")):
            if not folder.is_dir():
                scratch = folder.with_name(f".{folder.name}.unfinished")
                fetch_files(uri, scratch)  # what one that was killed has left is kept
                scratch.rename(folder)
    return folder
