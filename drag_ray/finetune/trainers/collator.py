"""Tokenized rows become batches."""

from collections.abc import Sequence
from typing import Any

import torch
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from drag_ray.engine.models.tokens import IGNORED_LABEL
from drag_ray.errors import TrainError
from drag_ray.finetune.rows.images import TrainingImages
from drag_ray.finetune.rows.tokenized_rows import PAIR_SIDES
from drag_ray.finetune.trainers.shared_prefixes import share_prompts


class RowCollator:
    """Makes a batch of rows {input_ids, labels, image_keys, weight or advantage}, and opens and processes its images.

    Args:
        pad_token_id: fills short rows.
        images: where images come from; None for rows without any.
        number: the column of a number of each row to hand on, of shape (rows,); None for none.
        packs: put the rows one after the other instead, for a model of `keep_rows_apart`.
    """

    def __init__(
        self, pad_token_id: int, images: TrainingImages | None = None, *, number: str | None = None, packs: bool = False
    ) -> None:
        self._join = DataCollatorForLanguageModeling(pad_token_id, padding_free=packs)
        self._images = images
        self._number = number

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """`input_ids`, `labels` and `attention_mask` of shape (rows, tokens), what images become, and where there is a number, it
        and `rows`, the 0-based row of each token.

        Of a pack the shape is (1, tokens). It has `position_ids` and the bounds of its rows in the place of the mask, and no
        label for the first token of a row, which nothing tells. Raises DataError where an image is missing or damaged, or fills
        other places than the tokens of its row leave to it, and TrainError where a token would be learned in the place of
        another, or of an image.
        """
        batch = dict(self._join([{name: row[name] for name in ("input_ids", "labels")} for row in rows]))
        numbers = batch.pop("seq_idx", torch.arange(len(rows)).unsqueeze(1)).long()
        is_learned = batch["labels"] != IGNORED_LABEL
        learnable = batch["input_ids"]
        if self._images:
            learnable = learnable.masked_fill(learnable == self._images.mark_id, IGNORED_LABEL)
            batch |= self._images.build_inputs(batch["input_ids"], [row["image_keys"] for row in rows])
        if not torch.equal(batch["labels"][is_learned], learnable[is_learned]):
            raise TrainError("a batch would learn a token that is not the reply's at its place, or an image. Report this.")
        if self._number:
            batch[self._number] = torch.tensor([row[self._number] for row in rows], dtype=torch.float32)
            # Whole, as pinned memory has to be.
            batch["rows"] = numbers.expand_as(batch["labels"]).contiguous()
        return batch


class PairCollator:
    """Makes a batch of preference pairs {chosen, rejected, image_keys}: all chosen, then all rejected.

    Args:
        pad_token_id: fills short rows.
        images: where images come from; None for pairs without any.
        shares: compute the prompt of a pair once where that helps, for a model of `can_share_prefixes`.
    """

    def __init__(self, pad_token_id: int, images: TrainingImages | None = None, *, shares: bool = False) -> None:
        self._pad_token_id = pad_token_id
        self._collate = RowCollator(pad_token_id, images)
        self._shares = shares and images is None

    def __call__(self, pairs: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """The batch of `share_prompts`; or that of `RowCollator`, of shape (2 x pairs, tokens), with `rows`, the 0-based row of
        each token."""
        if self._shares and (shared := share_prompts(pairs, self._pad_token_id)):
            return shared
        batch = self._collate([{**pair[side], "image_keys": pair["image_keys"]} for side in PAIR_SIDES for pair in pairs])
        return batch | {"rows": torch.arange(2 * len(pairs)).unsqueeze(1).expand_as(batch["labels"]).contiguous()}
