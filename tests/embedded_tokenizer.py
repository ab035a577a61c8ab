"""The tokenizer of the embedded model: read once in a process, for it takes half a second, which is more than most tests do."""

import shutil
from functools import cache
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from drag_ray.engine.models.embedded import embedded_model_dir

_NAMES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


@cache
def load_shared_tokenizer() -> Any:
    """The one that all tests of this process share; a test that changes it copies it first."""
    return AutoTokenizer.from_pretrained(embedded_model_dir())


def write_tokenizer(folder: Path) -> None:
    """Write it into the folder of another model."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _NAMES:
        shutil.copyfile(embedded_model_dir() / name, folder / name)
