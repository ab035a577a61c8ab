"""A small tokenizer for small models: the commonest tokens of the embedded model's, with its marks and its chat template.

The whole one takes half a second to read, which a training does several times, and makes all but the vocabulary of a small model
small: most of the time of a test went there.
"""

import json
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import AutoTokenizer

from drag_ray.engine.models.embedded import embedded_model_dir

VOCABULARY = 10_496  # tokens, of which a reranker's "yes" is one of the last
_TOKENIZER_NAME = "tokenizer.json"
_OTHER_NAMES = ("tokenizer_config.json", "chat_template.jinja")


@cache
def _read_small() -> str:
    """The tokenizer's file without rarer tokens: words that had one are written in parts."""
    tokenizer = json.loads((embedded_model_dir() / _TOKENIZER_NAME).read_text())
    model = tokenizer["model"]
    vocabulary = model["vocab"] = {token: place for token, place in model["vocab"].items() if place < VOCABULARY}
    model["merges"] = [parts for parts in model["merges"] if "".join(parts) in vocabulary]
    return json.dumps(tokenizer)


@cache
def load_shared_tokenizer() -> Any:
    """The one that all tests of this process share; a test that changes it copies it first."""
    with TemporaryDirectory() as folder:
        return AutoTokenizer.from_pretrained(write_tokenizer(Path(folder)))


def write_tokenizer(folder: Path) -> Path:
    """Write it into the folder of a model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _TOKENIZER_NAME).write_text(_read_small())
    for name in _OTHER_NAMES:
        shutil.copyfile(embedded_model_dir() / name, folder / name)
    return folder
