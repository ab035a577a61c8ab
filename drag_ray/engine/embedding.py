"""Embedding models at work: from texts to vectors, and from a long text to the windows that such a model can read."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer

from drag_ray.engine.embedding_folder import read_embedding_folder
from drag_ray.errors import ConfigError
from drag_ray.search.config import EmbeddingConfig


class Embedder:
    """A model of sentence-transformers. Safe to share between threads, one of which embeds at a time.

    Attributes:
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
        self._tokenizer = _load_tokenizer(self._folder.transformer_dir)
        self._model = _load_transformer(self._folder.transformer_dir, config.dtype).to(device).eval()
        self._device = device
        self._lock = threading.Lock()  # a tokenizer must not be used by two threads at once
        self._query_prompt = config.query_prompt or self._folder.query_prompt
        self._page_prompt = config.page_prompt or self._folder.page_prompt
        self._max_tokens = self._compute_max_tokens()
        self._own_tokens = self._compute_own_tokens()
        self.dimensions: int = self._model.config.get_text_config().hidden_size

    def cut_windows(self, text: str) -> list[str]:
        """The windows of a page's text, which overlap; none of a text without a token."""
        with self._lock:
            read = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        places = read["offset_mapping"]
        windows = plan_windows(len(places), self._own_tokens, self._config.overlap_tokens)
        return [text[places[window.start][0] : places[window.stop - 1][1]] for window in windows]

    def embed_pages(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of n windows: float32 (n, dimensions).

        Raises:
            ConfigError: the model makes numbers that are infinite or none.
        """
        return self._embed([self._page_prompt + text for text in texts], self._config.window_tokens)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of n queries: float32 (n, dimensions). What a model cannot read of a query is left out.

        Raises:
            ConfigError: the model makes numbers that are infinite or none.
        """
        return self._embed([self._query_prompt + text for text in texts], self._max_tokens)

    def _embed(self, texts: Sequence[str], max_tokens: int) -> np.ndarray:
        """Texts of like length are read together: what pads the shorter ones costs as much as text."""
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        places = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        for start in range(0, len(texts), self._config.batch_size):
            batch = places[start : start + self._config.batch_size]
            vectors[batch] = self._read([texts[place] for place in batch], max_tokens)
        if not np.isfinite(vectors).all():
            raise ConfigError(
                f"embedding.model {self._config.model!r}: makes infinite numbers in {self._config.dtype}. "
                "Try --embedding.dtype float32."
            )
        return vectors

    def _read(self, texts: list[str], max_tokens: int) -> np.ndarray:
        if self._folder.lowercases:
            texts = [text.lower() for text in texts]
        with self._lock, torch.inference_mode():
            inputs = self._tokenizer(texts, padding=True, truncation=True, max_length=max_tokens, return_tensors="pt")
            inputs = inputs.to(self._device)
            pooled = pool(self._model(**inputs).last_hidden_state, inputs["attention_mask"], self._folder.pooling)
            if self._folder.normalises:
                pooled = torch.nn.functional.normalize(pooled)
            return pooled.cpu().numpy()

    def _compute_max_tokens(self) -> int:
        positions = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)
        said = self._folder.max_tokens or min(self._tokenizer.model_max_length, positions or self._tokenizer.model_max_length)
        if self._config.window_tokens > said:
            raise ConfigError(
                f"embedding.window_tokens {self._config.window_tokens}: {self._config.model!r} reads {said} tokens at most. "
                f"Set --embedding.window-tokens {said}, or less."
            )
        return said

    def _compute_own_tokens(self) -> int:
        """Tokens of a window that are its page's: the model's own marks and the prompt take some."""
        taken = len(self._tokenizer(self._page_prompt)["input_ids"])
        if self._config.window_tokens - taken <= self._config.overlap_tokens:
            raise ConfigError(
                f"embedding.window_tokens {self._config.window_tokens}: the model's marks and the page prompt take {taken} of "
                f"them and overlap_tokens {self._config.overlap_tokens} more, which leaves nothing. Set a larger window or a "
                "smaller overlap."
            )
        return self._config.window_tokens - taken


def plan_windows(num_tokens: int, size: int, overlap: int) -> list[range]:
    """Windows of `size` tokens over a text of `num_tokens`, each but the first with the last `overlap` tokens before it.

    The last one ends with the text and may be shorter; no window is within another.
    """
    starts = range(0, max(num_tokens - overlap, 1), size - overlap) if num_tokens else ()
    return [range(start, min(start + size, num_tokens)) for start in starts]


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


def _load_tokenizer(folder: Path) -> Any:
    tokenizer = _load(AutoTokenizer, folder)
    if not tokenizer.is_fast:
        raise ConfigError(f"{folder}: its tokenizer does not tell where in a text its tokens are. Name another embedding.model.")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer


def _load_transformer(folder: Path, dtype: str) -> Any:
    config = _load(AutoConfig, folder)
    if config.is_encoder_decoder:
        raise ConfigError(f"{folder}: a {config.model_type} model with a decoder. Name another embedding.model.")
    return _load(AutoModel, folder, dtype=getattr(torch, dtype))


def _load(auto_class: Any, folder: Path, **options: Any) -> Any:
    try:
        return auto_class.from_pretrained(folder, **options)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{folder}: cannot be read as an embedding model ({error}).") from None
