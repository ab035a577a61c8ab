"""The trainers of sentence-transformers, with the learning rate and the checks that all trainings have."""

from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers import SentenceTransformerTrainer
from sentence_transformers.base.losses.merged_forward import embed_columns
from sentence_transformers.cross_encoder import CrossEncoderTrainer
from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss, MultipleNegativesRankingLoss
from sentence_transformers.util import pairwise_cos_sim

from drag_ray.finetune.trainers.adapter_trainer import RowMeans


class EncoderSteps(RowMeans):
    """Stands before a trainer of sentence-transformers, and counts the tokens that its model learns from."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.data_collator.valid_label_columns = ["labels"]  # which the library asks its own collator for
        self._num_tokens = 0
        model: Any = self.model
        model.register_forward_pre_hook(self._count_tokens)

    def _count_tokens(self, model: Any, inputs: tuple[Any, ...]) -> None:
        if model.training:
            self._num_tokens += int(inputs[0]["attention_mask"].sum())

    def _track_num_input_tokens(self, inputs: dict[str, Any]) -> None:
        """Nothing: the texts of a batch become tokens where its loss is computed."""

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        """Count the tokens of a batch in all processes."""
        loss = super().training_step(model, inputs, num_items_in_batch)
        of_batch = torch.tensor(self._num_tokens, device=self.args.device)
        self.state.num_input_tokens_seen += int(torch.as_tensor(self.accelerator.gather(of_batch)).sum())
        self._num_tokens = 0
        return loss


class CrossEncoderSteps(EncoderSteps, CrossEncoderTrainer):
    """Of rows {query, docs, labels, name}."""


class EmbedderSteps(EncoderSteps, SentenceTransformerTrainer):
    """Of rows {anchor, positive, negative_1, ..., name}, with `labels` where a teacher has scored the pages."""


class DistilledRanking(torch.nn.Module):
    """The loss of the labels, and that of a teacher's scores of the pages of each row."""

    def __init__(self, model: Any, ranking: MultipleNegativesRankingLoss, share: float) -> None:
        super().__init__()
        self.model = model
        self._ranking = ranking
        self._share = share
        # Cosines are as sharp for the teacher as for the labels.
        self._distilling = DistillKLDivLoss(model, lambda one, other: ranking.scale * pairwise_cos_sim(one, other))

    def forward(self, sentence_features: Iterable[dict[str, torch.Tensor]], labels: torch.Tensor) -> torch.Tensor:
        """The weighted sum, of texts that are embedded once."""
        embedded = embed_columns(self.model, sentence_features)
        distilled = self._distilling.compute_loss_from_embeddings(embedded, labels)
        return (1 - self._share) * self._ranking.compute_loss_from_embeddings(embedded, labels) + self._share * distilled
