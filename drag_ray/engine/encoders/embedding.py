"""Embedding models: vectors of pages, in windows where they are long, and of queries; and models that embed texts and images
alike: CLIP, SigLIP and their like, of transformers or of sentence-transformers."""

import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from drag_ray.engine.encoders.loading import check_vocabulary, embed, limit_tokens, load_encoder
from drag_ray.engine.models.model_folder import locate_model
from drag_ray.engine.models.tokens import cut_windows
from drag_ray.errors import ConfigError
from drag_ray.search.config import EmbeddingConfig, ImageEmbeddingConfig
from drag_ray.search.normal_form import normalise

if TYPE_CHECKING:
    from PIL.Image import Image


_OPTION = "embedding.model"
_IMAGE_OPTION = "image_embedding.model"
_PAGE_PROMPTS = ("document", "passage", "corpus")
"""The library takes the first of them even if it is empty and another is not."""


class Embedder:
    """A model of sentence-transformers. Safe to share between threads, of which one embeds at a time. What it embeds raises
    ConfigError where the model makes numbers that are infinite or none.

    Attributes:
        dimensions: of its vectors.

    Args:
        config: the model and how it reads.
        device: of `load_encoder`.

    Raises:
        ConfigError: as `locate_model`, `load_encoder` and `check_vocabulary`, its vectors are compared neither by cosines nor by
            inner products, or it reads less than the windows hold.
    """

    def __init__(self, config: EmbeddingConfig, device: str = "cpu") -> None:
        self._config = config
        folder = locate_model(config.model, _OPTION)
        if not (folder / "modules.json").is_file():  # the library would make up how the vectors of tokens become one
            raise ConfigError(f"{folder}: no modules.json. {_OPTION} must be a model of sentence-transformers.")
        self._model: Any = load_encoder(SentenceTransformer, folder, _OPTION, config.dtype, device)
        check_vocabulary(self._model, _OPTION, config.model)
        self._tokenizer: Any = self._model.tokenizer
        self._check()
        self._normalises = self._model.similarity_fn_name == "cosine" or isinstance(self._model[-1], Normalize)
        if isinstance(self._model[-1], Normalize):
            del self._model[-1]  # it would be done in the weights' number format, and is done in float32
        self._query_prompt = config.query_prompt or self._find_prompt("query")
        self._page_prompt = config.page_prompt or self._find_prompt(*_PAGE_PROMPTS)
        self._own_tokens = self._compute_own_tokens()
        self._lock = threading.Lock()  # one batch takes all cores and enough memory, and the tokenizer keeps how it cuts
        self.dimensions: int = self._model.get_embedding_dimension()

    def cut(self, text: str) -> list[str]:
        """The windows of a page's text, which overlap; none of a text without a token."""
        with self._lock:
            return cut_windows(self._tokenizer, text, self._own_tokens, self._config.overlap_tokens)

    def embed_pages(self, windows: Sequence[str]) -> np.ndarray:
        """The vectors of n windows: float32 (n, dimensions)."""
        return self._embed(self._model.encode_document, windows, self._page_prompt)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of n queries: float32 (n, dimensions). What the model cannot read of a long one is left out."""
        return self._embed(self._model.encode_query, texts, self._query_prompt)

    def _embed(self, encode: Callable[..., Any], texts: Sequence[str], prompt: str) -> np.ndarray:
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        inputs = [normalise(text) for text in texts]
        options = {"prompt": prompt, "batch_size": self._config.batch_size}
        with self._lock:
            return embed(partial(encode, **options), inputs, _OPTION, self._config.dtype, normalises=self._normalises)

    def _check(self) -> None:
        name, size = self._config.model, self._config.window_tokens
        if self._model.similarity_fn_name not in ("cosine", "dot"):
            found = self._model.similarity_fn_name
            raise ConfigError(f"{_OPTION} {name!r}: its vectors are compared by {found}; expected cosine or dot.")
        if not getattr(self._tokenizer, "is_fast", False):
            raise ConfigError(f"{_OPTION} {name!r}: its tokenizer does not tell where in a text its tokens are. Name another.")
        self._tokenizer.pad_token = self._tokenizer.pad_token or self._tokenizer.eos_token
        max_tokens = limit_tokens(self._model, sys.maxsize)
        if size > max_tokens:
            raise ConfigError(
                f"embedding.window_tokens {size}: {name!r} reads {max_tokens} tokens at most. Set --embedding.window-tokens "
                f"{max_tokens}, or less."
            )

    def _find_prompt(self, *names: str) -> str:
        """The prompt of the first name set, or the default."""
        prompts: dict[str, str] = self._model.prompts
        return next((prompts[name] for name in names if prompts.get(name)), prompts.get(self._model.default_prompt_name, ""))

    def _compute_own_tokens(self) -> int:
        """Tokens of a window that are its page's: the model's own marks and the prompt take some."""
        taken = len(self._tokenizer(self._page_prompt)["input_ids"])
        size, overlap = self._config.window_tokens, self._config.overlap_tokens
        if size - taken <= overlap:
            raise ConfigError(
                f"embedding.window_tokens {size}: the model's marks and the page prompt take {taken} of them and "
                f"overlap_tokens {overlap} more, so no token is left for the text. Set larger windows or a smaller overlap."
            )
        return size - taken


class ImageEmbedder:
    """A model that makes vectors of length 1 of texts and of images. Threads may share it, of which one embeds at a time. Raises
    ConfigError: as `locate_model` and `load_encoder`, or the model does not embed both; and of what it embeds, where the model
    makes numbers that are infinite or none."""

    def __init__(self, config: ImageEmbeddingConfig, device: str = "cpu") -> None:
        self._config = config
        self._model: Any = load_encoder(
            SentenceTransformer, locate_model(config.model, _IMAGE_OPTION), _IMAGE_OPTION, config.dtype, device
        )
        if not {"text", "image"} <= set(self._model.modalities):
            kind = self._model.config.model_type
            raise ConfigError(
                f"{_IMAGE_OPTION} {config.model!r}: a {kind} model, which does not embed texts and images alike. Name a CLIP or "
                "SigLIP model."
            )
        self._lock = threading.Lock()  # one batch takes all cores and enough memory

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of n texts, of which what the model cannot read is cut off: float32 (n, dimensions)."""
        limit = self._model.config.get_text_config().max_position_embeddings
        # Padded to the limit, which SigLIP was trained with and CLIP does not mind.
        return self._embed(texts, text={"padding": "max_length", "truncation": True, "max_length": limit})

    def embed_images(self, images: Sequence["Image"]) -> np.ndarray:
        """The vectors of n images, which the model sees at once: float32 (n, dimensions)."""
        return self._embed([image.convert("RGB") for image in images])

    def _embed(self, inputs: Sequence[Any], **processing: Any) -> np.ndarray:
        encode = partial(self._model.encode, processing_kwargs=processing, batch_size=len(inputs))
        with self._lock:
            return embed(encode, inputs, _IMAGE_OPTION, self._config.dtype)
