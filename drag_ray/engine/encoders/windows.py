"""What an embedding model reads of a text: its windows where the text is long, and their tokens."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer

from drag_ray.engine.encoders.embedding_folder import EmbeddingFolder
from drag_ray.errors import ConfigError
from drag_ray.search.config import EmbeddingConfig
from drag_ray.search.normal_form import normalise


class WindowTokenizer:
    """The tokenizer of an embedding model. Safe to share between threads.

    Attributes:
        max_tokens: that the model reads.

    Args:
        folder: of the model.
        config: the windows.

    Raises:
        ConfigError: the model has no tokenizer that fits, or reads less than the windows hold.
    """

    def __init__(self, folder: EmbeddingFolder, config: EmbeddingConfig) -> None:
        self._folder = folder
        self._config = config
        self._tokenizer = _load_tokenizer(folder.transformer_dir)
        self._lock = threading.Lock()  # the tokenizer keeps how it was last asked to cut
        self._page_prompt = config.page_prompt or folder.page_prompt
        self.max_tokens = self._compute_max_tokens()
        self._own_tokens = self._compute_own_tokens()

    def cut(self, text: str) -> list[str]:
        """The windows of a page's text, which overlap; none of a text without a token."""
        with self._lock:
            read = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        places = read["offset_mapping"]
        windows = plan_windows(len(places), self._own_tokens, self._config.overlap_tokens)
        return [text[places[window.start][0] : places[window.stop - 1][1]] for window in windows]

    def encode_pages(self, windows: Sequence[str]) -> Any:
        """Windows as the model takes them: PyTorch tensors (n, tokens), padded."""
        return self._encode(windows, self._page_prompt, self._config.window_tokens)

    def encode_queries(self, texts: Sequence[str]) -> Any:
        """Queries in the same way. What the model cannot read of a long one is left out."""
        return self._encode(texts, self._config.query_prompt or self._folder.query_prompt, self.max_tokens)

    def _encode(self, texts: Sequence[str], prompt: str, max_tokens: int) -> Any:
        texts = [prompt + normalise(text) for text in texts]
        if self._folder.lowercases:
            texts = [text.lower() for text in texts]
        with self._lock:
            return self._tokenizer(texts, padding=True, truncation=True, max_length=max_tokens, return_tensors="pt")

    def _compute_max_tokens(self) -> int:
        text_config = load_pretrained(AutoConfig, self._folder.transformer_dir).get_text_config()
        limits = (self._tokenizer.model_max_length, getattr(text_config, "max_position_embeddings", None))
        max_tokens = self._folder.max_tokens or min(limit for limit in limits if limit)
        if self._config.window_tokens > max_tokens:
            raise ConfigError(
                f"embedding.window_tokens {self._config.window_tokens}: {self._config.model!r} reads {max_tokens} tokens at "
                f"most. Set --embedding.window-tokens {max_tokens}, or less."
            )
        return max_tokens

    def _compute_own_tokens(self) -> int:
        """Tokens of a window that are its page's: the model's own marks and the prompt take some."""
        taken = len(self._tokenizer(self._page_prompt)["input_ids"])
        size, overlap = self._config.window_tokens, self._config.overlap_tokens
        if size - taken <= overlap:
            raise ConfigError(
                f"embedding.window_tokens {size}: the model's marks and the page prompt take {taken} of them and "
                f"overlap_tokens {overlap} more, which leaves nothing. Set larger windows or a smaller overlap."
            )
        return size - taken


def plan_windows(num_tokens: int, size: int, overlap: int) -> list[range]:
    """Windows of `size` tokens over a text of `num_tokens`, each but the first with the last `overlap` tokens before it.

    The last one ends with the text and may be shorter; no window is within another.
    """
    starts = range(0, max(num_tokens - overlap, 1), size - overlap) if num_tokens else ()
    return [range(start, min(start + size, num_tokens)) for start in starts]


def load_pretrained(auto_class: Any, folder: Path, **options: Any) -> Any:
    """What a class of transformers makes of a model's folder.

    Raises:
        ConfigError: nothing that it could read.
    """
    try:
        return auto_class.from_pretrained(folder, **options)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{folder}: cannot be read as an embedding model ({error}).") from None


def _load_tokenizer(folder: Path) -> Any:
    tokenizer = load_pretrained(AutoTokenizer, folder)
    if not tokenizer.is_fast:
        raise ConfigError(f"{folder}: its tokenizer does not tell where in a text its tokens are. Name another embedding.model.")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer
