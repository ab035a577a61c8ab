"""Models that embed texts and images alike: CLIP, SigLIP and their like, as transformers reads them.

Folders of sentence-transformers are read too where such a model is all that they hold (`clip-ViT-B-32` and its kind).
"""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from transformers import AutoConfig, AutoImageProcessor, AutoModel, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from drag_ray.engine.encoders.embedding_folder import locate_model, read_modules
from drag_ray.engine.encoders.windows import load_pretrained
from drag_ray.errors import ConfigError
from drag_ray.search.config import ImageEmbeddingConfig

if TYPE_CHECKING:
    from PIL.Image import Image

_OPTION = "image_embedding.model"
_TEXT_INPUTS = ("input_ids", "attention_mask")
_LAYOUT = ["CLIPModel"]
"""Of a folder of sentence-transformers; models of several modules make vectors of their own kinds."""


class ImageEmbedder:
    """A model that makes vectors of length 1 of texts and of images. Threads may share it, of which one embeds at a time.

    Args:
        config: the model.
        device: `cpu` or `cuda`.

    Raises:
        ConfigError: there is no such model, or it does not embed both.
    """

    def __init__(self, config: ImageEmbeddingConfig, device: str = "cpu") -> None:
        disable_progress_bar()
        self._readers = read_image_model(config.model)
        self._config = config
        self._device = device
        self._model = load_pretrained(AutoModel, self._readers.folder, dtype=getattr(torch, config.dtype)).to(device).eval()
        if not (hasattr(self._model, "get_text_features") and hasattr(self._model, "get_image_features")):
            raise _describe_other_kind(config.model, self._model.config.model_type)
        self._lock = threading.Lock()  # one batch takes all cores and enough memory

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of n texts, of which what the model cannot read is cut off: float32 (n, dimensions).

        Raises:
            ConfigError: the model makes numbers that are infinite or none.
        """
        limit = self._model.config.get_text_config().max_position_embeddings
        # Padded to the limit, which SigLIP was trained with and CLIP does not mind.
        padded = {"padding": "max_length", "truncation": True, "max_length": limit, "return_tensors": "pt"}
        read = self._readers.tokenizer(list(texts), **padded)
        return self._run(self._model.get_text_features, {name: read[name] for name in _TEXT_INPUTS if name in read})

    def embed_images(self, images: Sequence["Image"]) -> np.ndarray:
        """The vectors of n images, which the model sees at once: float32 (n, dimensions).

        Raises:
            ConfigError: the model makes numbers that are infinite or none.
        """
        inputs = self._readers.processor(images=[image.convert("RGB") for image in images], return_tensors="pt")
        return self._run(self._model.get_image_features, inputs)

    def _prepare(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self._device, self._model.dtype if value.is_floating_point() else value.dtype)

    def _run(self, compute: Any, inputs: Mapping[str, torch.Tensor]) -> np.ndarray:
        with self._lock, torch.inference_mode():
            found = compute(**{name: self._prepare(value) for name, value in inputs.items()}).pooler_output.float()
            vectors = torch.nn.functional.normalize(found).cpu().numpy()
        if not np.isfinite(vectors).all():
            raise ConfigError(
                f"{_OPTION} {self._config.model!r}: makes infinite numbers in {self._config.dtype}. "
                "Try --image-embedding.dtype float32."
            )
        return vectors


class ImageModelReaders(NamedTuple):
    """What a model reads texts and images with, and its folder."""

    folder: Path
    tokenizer: Any
    processor: Any


def read_image_model(model: str) -> ImageModelReaders:
    """What a model says of itself, without its weights.

    Args:
        model: a folder, or a name on the Hugging Face Hub, from where it is fetched.

    Raises:
        ConfigError: there is no such model, or it does not embed texts and images alike.
    """
    folder = _find_transformer(model)
    config = load_pretrained(AutoConfig, folder)
    if not (hasattr(config, "text_config") and hasattr(config, "vision_config")):
        raise _describe_other_kind(model, config.model_type)
    return ImageModelReaders(folder, load_pretrained(AutoTokenizer, folder), load_pretrained(AutoImageProcessor, folder))


def _describe_other_kind(model: str, kind: str) -> ConfigError:
    return ConfigError(
        f"{_OPTION} {model!r}: a {kind} model, which does not embed texts and images alike. Name a CLIP or SigLIP model."
    )


def _find_transformer(model: str) -> Path:
    """The folder that transformers reads.

    Raises:
        ConfigError: there is no such model, or it is made of several modules.
    """
    folder = locate_model(model, _OPTION)
    if not (folder / "modules.json").exists():
        return folder
    kinds, paths = read_modules(folder)
    if kinds != _LAYOUT:
        raise ConfigError(
            f"{folder / 'modules.json'}: the model is made of {', '.join(kinds)}; expected {_LAYOUT[0]} alone. Name a CLIP or "
            f"SigLIP model as {_OPTION}."
        )
    return folder / paths[0]
