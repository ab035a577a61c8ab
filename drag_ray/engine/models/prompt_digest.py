"""Digest of a prompt, by which training checks that it shows a model the tokens that the engine showed it."""

import hashlib
from collections.abc import Sequence


def compute_prompt_digest(token_ids: Sequence[int], images: Sequence[str]) -> str:
    """A hash of all tokens of a prompt and of the images in it; the same on every machine.

    Args:
        token_ids: those that fill the places of images among them, which are as many as the model's processor cuts an image into.
        images: their keys, which are hashes of what they show.
    """
    import numpy as np

    digest = hashlib.sha256(np.asarray(token_ids, dtype="<i4").tobytes())
    for key in images:
        digest.update(key.encode())
    return digest.hexdigest()[:32]
