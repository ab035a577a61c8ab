"""Tokenized rows become batches."""

from collections.abc import Sequence
from typing import Any

import torch
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from drag_ray.engine.tokens import IGNORED_LABEL
from drag_ray.finetune.images import TrainingImages
from drag_ray.finetune.tokenized_rows import PAIR_SIDES


class RowCollator:
    """Pads rows {input_ids, labels, image_keys, weight or advantage} into a batch, and opens and processes its images.

    Args:
        pad_token_id: fills short rows.
        images: where images come from; None for rows without any.
        number: which of `ROW_NUMBERS` to hand on, of shape (rows,); None for none.
    """

    def __init__(self, pad_token_id: int, images: TrainingImages | None = None, *, number: str | None = None) -> None:
        self._pad = DataCollatorForLanguageModeling(pad_token_id)
        self._images = images
        self._number = number

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """`input_ids`, `labels` and `attention_mask` of shape (rows, tokens), the number, and what images become."""
        batch = dict(self._pad([{name: row[name] for name in ("input_ids", "labels")} for row in rows]))
        if self._images:
            batch |= self._images.build_inputs(batch["input_ids"], [key for row in rows for key in row["image_keys"]])
        if self._number:
            batch[self._number] = torch.tensor([row[self._number] for row in rows], dtype=torch.float32)
        return batch


class PairCollator:
    """Pads preference pairs {chosen, rejected, image_keys} into a batch as TRL takes it: all chosen, then all rejected.

    Args:
        pad_token_id: fills short rows.
        images: where images come from; None for pairs without any.
        marks_replies: add `completion_mask`, which DPO needs, and a reward model does not know.
    """

    def __init__(self, pad_token_id: int, images: TrainingImages | None = None, *, marks_replies: bool = True) -> None:
        self._collate = RowCollator(pad_token_id, images)
        self._marks_replies = marks_replies

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """`input_ids`, `attention_mask` and perhaps `completion_mask` of shape (2 x rows, tokens), and what images become."""
        batch = self._collate([{**row[side], "image_keys": row["image_keys"]} for side in PAIR_SIDES for row in rows])
        if self._marks_replies:
            return _mark_reply(batch)
        del batch["labels"]
        return batch


class LabelledCollator:
    """Pads labelled replies {input_ids, labels, image_keys, is_wanted} into a batch as TRL's KTO takes it.

    Beside each conversation stands its prompt with the reply of another row, the one before: how likely such replies have become
    tells how far the policy has come as a whole (https://arxiv.org/abs/2402.01306, section 4.1).

    Args:
        pad_token_id: fills short rows.
        images: where images come from; None for rows without any.
    """

    def __init__(self, pad_token_id: int, images: TrainingImages | None = None) -> None:
        self._collate = RowCollator(pad_token_id, images)
        self._pad = RowCollator(pad_token_id)
        self._images = images

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """`input_ids`, `attention_mask` and `completion_mask` of shape (rows, tokens), the same three with KL_ before their
        names, of the rows with another's reply; `label` of shape (rows,); and what images become.
        """
        batch = _mark_reply(self._collate(rows))
        swapped = _mark_reply(self._pad(_give_other_replies(rows)))
        if self._images and any(row["image_keys"] for row in rows):
            swapped |= self._images.mark_images(swapped["input_ids"])
        label = torch.tensor([row["is_wanted"] for row in rows])
        return batch | {f"KL_{name}": tensor for name, tensor in swapped.items()} | {"label": label}


def _mark_reply(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The batch with `completion_mask` in the place of `labels`."""
    return {name: tensor for name, tensor in batch.items() if name != "labels"} | {
        "completion_mask": (batch["labels"] != IGNORED_LABEL).long()
    }


def _give_other_replies(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each row's prompt with the reply of the row before it; the first row's with the reply of the last."""
    starts = [next(place for place, label in enumerate(row["labels"]) if label != IGNORED_LABEL) for row in rows]
    return [
        {name: rows[own][name][: starts[own]] + rows[other][name][starts[other] :] for name in ("input_ids", "labels")}
        for own, other in zip(range(len(rows)), range(-1, len(rows) - 1), strict=True)
    ]
