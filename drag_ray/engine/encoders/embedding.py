"""Embedding models at work: from windows of pages and from queries to vectors."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModel
from transformers.utils.logging import disable_progress_bar

from drag_ray.engine.encoders.embedding_folder import EmbeddingFolder, read_embedding_folder
from drag_ray.engine.encoders.windows import WindowTokenizer, load_pretrained
from drag_ray.errors import ConfigError
from drag_ray.search.config import EmbeddingConfig


class Embedder:
    """A model of sentence-transformers. Safe to share between threads, of which one embeds at a time.

    Attributes:
        windows: its tokenizer, which cuts pages.
        dimensions: of its vectors.

    Args:
        config: the model and how it reads.
        device: `cpu` or `cuda`.

    Raises:
        ConfigError: there is no such model, it is of a kind that cannot be read here, or it reads less than the windows hold.
    """

    def __init__(self, config: EmbeddingConfig, device: str = "cpu") -> None:
        self._config = config
        self._folder = read_embedding_folder(config.model)
        self.windows = WindowTokenizer(self._folder, config)
        self._model = _load_model(self._folder, config.dtype).to(device).eval()
        self._device = device
        self._lock = threading.Lock()  # one batch takes all cores and enough memory
        self.dimensions: int = self._model.config.get_text_config().hidden_size

    def embed_pages(self, windows: Sequence[str]) -> np.ndarray:
        """The vectors of n windows: float32 (n, dimensions).

        Raises:
            ConfigError: the model makes numbers that are infinite or none.
        """
        return self._embed(windows, self.windows.encode_pages)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of n queries: float32 (n, dimensions).

        Raises:
            ConfigError: the model makes numbers that are infinite or none.
        """
        return self._embed(texts, self.windows.encode_queries)

    def _embed(self, texts: Sequence[str], encode: Callable[[Sequence[str]], Any]) -> np.ndarray:
        """Texts of like length are read together: what pads the shorter ones costs as much as text."""
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        places = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        for start in range(0, len(texts), self._config.batch_size):
            batch = places[start : start + self._config.batch_size]
            vectors[batch] = self._read(encode([texts[place] for place in batch]))
        if not np.isfinite(vectors).all():
            raise ConfigError(
                f"embedding.model {self._config.model!r}: makes infinite numbers in {self._config.dtype}. "
                "Try --embedding.dtype float32."
            )
        return vectors

    def _read(self, inputs: Any) -> np.ndarray:
        with self._lock, torch.inference_mode():
            inputs = inputs.to(self._device)
            pooled = pool(self._model(**inputs).last_hidden_state, inputs["attention_mask"], self._folder.pooling)
            if self._folder.normalises:
                pooled = torch.nn.functional.normalize(pooled)
            return pooled.cpu().numpy()


def pool(hidden: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """One vector for each text: float32 (n, dimensions).

    Args:
        hidden: of the tokens, (n, tokens, dimensions).
        mask: 1 for tokens, 0 for padding on either side, (n, tokens).
        pooling: cls (the first token), lasttoken or mean.
    """
    hidden = hidden.float()
    if pooling == "mean":
        weights = mask.unsqueeze(-1).float()
        return (hidden * weights).sum(1) / weights.sum(1)
    first, last = mask.argmax(1), mask.size(1) - 1 - mask.flip(1).argmax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), first if pooling == "cls" else last]


def _load_model(folder: EmbeddingFolder, dtype: str) -> Any:
    disable_progress_bar()
    config = load_pretrained(AutoConfig, folder.transformer_dir)
    if config.is_encoder_decoder:
        raise ConfigError(f"{folder.transformer_dir}: a {config.model_type} model with a decoder. Name another embedding.model.")
    return load_pretrained(AutoModel, folder.transformer_dir, dtype=getattr(torch, dtype))
