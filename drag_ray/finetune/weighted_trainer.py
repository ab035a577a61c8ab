"""Supervised training in which rows count differently."""

from typing import Any

import torch

from drag_ray.finetune.cpu_trainer import CpuSFTTrainer, count_weighted_tokens


class WeightedSFTTrainer(CpuSFTTrainer):
    """Each token counts as often as the `weight` of its row says.

    The weighted sum is divided by the weighted count of a whole step, over all of its batches and processes, so that weights
    shift attention between rows and leave the learning rate as it is.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._collate_texts = self.data_collator
        self.data_collator = self._collate

    def _collate(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        batch = self._collate_texts(rows)
        return {**batch, "weight": torch.tensor([row["weight"] for row in rows], dtype=torch.float32)}

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        columns = self._signature_columns or []
        self._signature_columns = [*columns, *({"weight"} - set(columns))]

    def _get_num_items_in_batch(self, batch_samples: list[dict[str, Any]], device: torch.device) -> torch.Tensor:
        count = torch.stack([count_weighted_tokens(batch) for batch in batch_samples]).sum().to(device)
        if self.args.average_tokens_across_devices and self.args.world_size > 1:
            count = torch.as_tensor(self.accelerator.gather(count)).sum()
        return count
