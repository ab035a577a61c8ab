"""Page images of training rows: the tokens that stand for them, and what the model's vision part is given.

Both come from the model's own processor, as they do when it serves, and images are opened by their keys, which are hashes of what
collection showed.  What was not in the prompt when the policy replied (`Turn.hidden_images`) is in no row either.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image

from drag_ray.corpus.image_store import ImageStore, ImageStores
from drag_ray.engine.pretrained import load_processor
from drag_ray.errors import TrainError


class TrainingImages:
    """Images as one vision-language model takes them.

    Attributes:
        mark_id: the token with which the chat template marks the place of an image.

    Args:
        processor: of the model.
        store: the pictures by their keys; None where the run keeps none.
    """

    def __init__(self, processor: Any, store: ImageStore | ImageStores | None) -> None:
        self._processor = processor
        self._store = store
        self.mark_id: int = processor.image_token_id
        self._tokens: dict[str, list[int]] = {}
        self._tokens_of_size: dict[tuple[int, int], list[int]] = {}

    def find_tokens(self, key: str) -> list[int]:
        """The tokens that stand for an image in place of its mark; how many they are depends on its size alone.

        Each image is opened once to see that it can be, and the first of each size goes through the processor.

        Raises:
            DataError: the image is missing or damaged.
            TrainError: the run keeps no images.
        """
        if key not in self._tokens:
            picture = self._open(key)
            if picture.size not in self._tokens_of_size:
                found = self._processor(text=[self._processor.image_token], images=[picture], add_special_tokens=False)
                self._tokens_of_size[picture.size] = list(found["input_ids"][0])
            self._tokens[key] = self._tokens_of_size[picture.size]
        return self._tokens[key]

    def build_inputs(self, input_ids: torch.Tensor, keys: Sequence[str]) -> dict[str, torch.Tensor]:
        """What the model's forward takes besides the tokens of a batch: the images, and `mark_images`.

        Args:
            input_ids: (rows, tokens), images expanded.
            keys: the images of all rows in their order.
        """
        if not keys:
            return {}
        pictures = [self._open(key) for key in keys]
        return dict(self._processor.image_processor(images=pictures, return_tensors="pt")) | self.mark_images(input_ids)

    def mark_images(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """`mm_token_type_ids`, of the shape of `input_ids`: which tokens are an image's; nothing for models that do not ask."""
        if "mm_token_type_ids" not in self._processor.model_input_names:
            return {}
        return {"mm_token_type_ids": torch.tensor(self._processor.create_mm_token_type_ids(input_ids.tolist()))}

    def _open(self, key: str) -> Image:
        if self._store is None:
            raise TrainError(
                "the training rows show page images, and this run has no index stage, in whose folder page images are kept. "
                "Run: python jobs/index.py --corpus.page-images, on the documents of the rows, or train on rows of text."
            )
        return self._store.open(key)


def open_training_images(model: str, image_dirs: Sequence[Path]) -> TrainingImages | None:
    """The images for a model, from the stores in these folders; None if the model takes none."""
    processor = load_processor(model)
    if processor is None or getattr(processor, "image_token_id", None) is None:
        return None
    return TrainingImages(processor, ImageStores(image_dirs) if image_dirs else None)
