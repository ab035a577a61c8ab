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
from drag_ray.engine.models.pretrained import load_processor
from drag_ray.errors import DataError, TrainError


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

        Each image is opened once to see that it can be, and the first of each size goes through the processor. Raises DataError
        where the image is missing or damaged, and TrainError where the run keeps no images.
        """
        if key not in self._tokens:
            picture = self._open(key)
            if picture.size not in self._tokens_of_size:
                found = self._processor(text=[self._processor.image_token], images=[picture], add_special_tokens=False)
                self._tokens_of_size[picture.size] = list(found["input_ids"][0])
            self._tokens[key] = self._tokens_of_size[picture.size]
        return self._tokens[key]

    def build_inputs(self, input_ids: torch.Tensor, keys: Sequence[Sequence[str]]) -> dict[str, torch.Tensor]:
        """The inputs of the model's forward besides the tokens of a batch: the images, and for models that ask for it
        `mm_token_type_ids`, of the shape of `input_ids`: which tokens are an image's. Raises DataError where an image is missing
        or damaged, or a row has not as many places as its images fill.

        Args:
            input_ids: (rows, tokens), images expanded.
            keys: the images of each row in their order.
        """
        pictures = [self._open(key) for of_row in keys for key in of_row]
        features = dict(self._processor.image_processor(images=pictures, return_tensors="pt")) if pictures else {}
        self._check_places(input_ids, keys, features)
        if pictures and "mm_token_type_ids" in self._processor.model_input_names:
            features["mm_token_type_ids"] = torch.tensor(self._processor.create_mm_token_type_ids(input_ids.tolist()))
        return features

    def _check_places(self, input_ids: torch.Tensor, keys: Sequence[Sequence[str]], features: dict[str, torch.Tensor]) -> None:
        """A model is given all images of a batch at once, and would take those of one row for another's."""
        if "image_grid_thw" in features:  # of families that say how many pieces each picture became
            sizes = features["image_grid_thw"].prod(dim=-1) // self._processor.image_processor.merge_size**2
        else:
            sizes = torch.tensor([self.find_tokens(key).count(self.mark_id) for of_row in keys for key in of_row])
        filled = [int(of_row.sum()) for of_row in sizes.split([len(of_row) for of_row in keys])]
        places = (input_ids == self.mark_id).sum(dim=1).tolist()
        for of_row, num_filled, num_places in zip(keys, filled, places, strict=True):
            if num_filled != num_places:
                raise DataError(
                    f"a row leaves {num_places} places to its images, which fill {num_filled} ({', '.join(of_row)[:200]}): they "
                    "are not those that it was tokenized with. Run: python jobs/format.py"
                )

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
