"""Models of sentence-transformers, as that library reads them: without code of their own, pickles or a network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers.utils.logging import disable_progress_bar

from drag_ray.errors import ConfigError

_PICKLE = "pytorch_model.bin"


def load_encoder(
    kind: type[SentenceTransformer | CrossEncoder], folder: Path, option: str, dtype: str, device: str, **options: Any
) -> Any:
    """A model as a class of sentence-transformers. Raises ConfigError where the library cannot read it within these limits.

    Args:
        kind: the class.
        folder: of the model.
        option: that names it.
        dtype: of its weights (`bfloat16`, `float32`).
        device: `cpu`, `cuda`, or `meta`, for which no weights are loaded.
        options: of the class.
    """
    disable_progress_bar()
    # The library reads those of modules other than transformers where they have no safetensors.
    for path in folder.rglob(_PICKLE):
        if not path.with_name("model.safetensors").exists():
            raise ConfigError(f"{path}: weights as a pickle, which are not read. Name a {option} with model.safetensors.")
    weights = {"dtype": getattr(torch, dtype), "use_safetensors": True} | ({"device_map": device} if device == "meta" else {})
    chosen = None if device == "meta" else device
    try:
        return kind(str(folder), device=chosen, local_files_only=True, model_kwargs=weights, **options)
    except Exception as error:  # the library raises what it meets in a folder that it does not understand
        why = str(error).partition("\n")[0][:300]
        raise ConfigError(f"{option} {str(folder)!r}: cannot be read by sentence-transformers ({why}). Name another.") from None


def limit_tokens(model: Any, max_tokens: int) -> int:
    """Have a model of sentence-transformers read so many tokens at most, or what it was made for. Returns how many."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    # The library takes the first of them, and a tokenizer may know no end.
    model.max_seq_length = min(limit for limit in (max_tokens, model.max_seq_length, positions) if limit)
    return model.max_seq_length


def check_vocabulary(model: Any, option: str, folder: str) -> None:
    """ConfigError if the tokenizer of a model of sentence-transformers knows tokens for which the model has no embedding."""
    if (transformer := model.transformers_model) is None:  # such models look their words up otherwise
        return
    known, embedded = len(model.tokenizer), transformer.get_input_embeddings().num_embeddings
    if known > embedded:
        raise ConfigError(
            f"{option} {folder!r}: its tokenizer has {known} tokens, and the model embeddings for {embedded} of them. Put the "
            "tokenizer there that belongs to it, or give it the others with transformers' resize_token_embeddings."
        )


def embed(encode: Any, inputs: Sequence[Any], option: str, dtype: str, *, normalises: bool = True) -> np.ndarray:
    """The vectors of n texts or images: float32 (n, dimensions), whose lengths are made in float32 too. Raises ConfigError where
    the model makes numbers that are infinite or none.

    Args:
        encode: a method of the model.
        option: that names the model.
        dtype: of its weights.
        normalises: whether the vectors have length 1.
    """
    found = encode(list(inputs), show_progress_bar=False, convert_to_tensor=True).float()
    vectors = (torch.nn.functional.normalize(found) if normalises else found).cpu().numpy()
    if not np.isfinite(vectors).all():
        section = option.partition(".")[0].replace("_", "-")
        raise ConfigError(f"{option}: makes infinite numbers in {dtype}. Try --{section}.dtype float32, or another model.")
    return vectors
