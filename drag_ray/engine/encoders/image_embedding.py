"""Models that embed texts and images alike: CLIP, SigLIP and their like, of transformers or of sentence-transformers."""

import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sentence_transformers import SentenceTransformer

from drag_ray.engine.encoders.loading import embed, load_encoder
from drag_ray.engine.models.model_folder import locate_model
from drag_ray.errors import ConfigError
from drag_ray.search.config import ImageEmbeddingConfig

if TYPE_CHECKING:
    from PIL.Image import Image

_OPTION = "image_embedding.model"


class ImageEmbedder:
    """A model that makes vectors of length 1 of texts and of images. Threads may share it, of which one embeds at a time.

    Args:
        config: the model.
        device: of `load_encoder`.

    Raises:
        ConfigError: as `locate_model` and `load_encoder`, or the model does not embed both.
    """

    def __init__(self, config: ImageEmbeddingConfig, device: str = "cpu") -> None:
        self._config = config
        self._model: Any = load_encoder(SentenceTransformer, locate_model(config.model, _OPTION), _OPTION, config.dtype, device)
        if not {"text", "image"} <= set(self._model.modalities):
            kind = self._model.config.model_type
            raise ConfigError(
                f"{_OPTION} {config.model!r}: a {kind} model, which does not embed texts and images alike. Name a CLIP or SigLIP "
                "model."
            )
        self._lock = threading.Lock()  # one batch takes all cores and enough memory

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of n texts, of which what the model cannot read is cut off: float32 (n, dimensions).

        Raises:
            ConfigError: the model makes numbers that are infinite or none.
        """
        limit = self._model.config.get_text_config().max_position_embeddings
        # Padded to the limit, which SigLIP was trained with and CLIP does not mind.
        return self._embed(texts, text={"padding": "max_length", "truncation": True, "max_length": limit})

    def embed_images(self, images: Sequence["Image"]) -> np.ndarray:
        """The vectors of n images, which the model sees at once: float32 (n, dimensions).

        Raises:
            ConfigError: the model makes numbers that are infinite or none.
        """
        return self._embed([image.convert("RGB") for image in images])

    def _embed(self, inputs: Sequence[Any], **processing: Any) -> np.ndarray:
        encode = partial(self._model.encode, processing_kwargs=processing, batch_size=len(inputs))
        with self._lock:
            return embed(encode, inputs, _OPTION, self._config.dtype)
