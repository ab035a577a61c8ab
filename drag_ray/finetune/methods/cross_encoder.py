"""A cross-encoder: a small model that reads a question with a page and gives one number.

Nogueira and Cho, Passage Re-ranking with BERT (2019, https://arxiv.org/abs/1901.04085). It learns from all pages of a question at
once, of which the evidence is to have the likelihood, or what a teacher gives it: the loss ListNet (Cao et al., 2007) of
sentence-transformers.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from drag_ray.engine.conversation import Row
from drag_ray.engine.models.relevance import RerankerNote, write_note
from drag_ray.finetune.methods.encoder import EncoderMethod, JudgedQuestion, mix_labels, softmax
from drag_ray.finetune.methods.judged_pages import diagnose_order
from drag_ray.search.config import RerankConfig

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import Trainer


class CrossEncoder(EncoderMethod):
    """The evidence of a question comes before its other pages."""

    option: ClassVar[str] = "finetune.cross_encoder.model"
    pipeline_tag: ClassVar[str] = "text-ranking"
    purpose: ClassVar[str] = "tells pages that answer a question from others"

    def build_rows(self, judged: JudgedQuestion) -> list[dict[str, Any]]:
        """One: `query`, `docs`, `labels`."""
        num_others = len(judged.passages) - judged.num_evidence
        labels = mix_labels(judged.num_evidence, num_others, judged.scores or [], self.distillation)
        return [{"query": judged.question, "docs": judged.passages, "labels": labels, "name": judged.name}]

    def load(self, folder: str, device: str) -> Any:
        """With one label: a new head where the model has none."""
        import sentence_transformers

        from drag_ray.engine.encoders.loading import check_vocabulary, limit_tokens, load_encoder

        model = load_encoder(sentence_transformers.CrossEncoder, Path(folder), self.option, "float32", device, num_labels=1)
        check_vocabulary(model, self.option, folder)
        limit_tokens(model, self.max_tokens)
        return model

    def build_trainer(self, model: Any, options: dict[str, Any], train: "Dataset", validation: "Dataset | None") -> "Trainer":
        """That of the library."""
        from sentence_transformers.cross_encoder import CrossEncoderTrainingArguments
        from sentence_transformers.cross_encoder.losses import ListNetLoss

        from drag_ray.finetune.trainers.encoders import CrossEncoderSteps

        loss = ListNetLoss(model, mini_batch_size=-1)  # all pages of a batch are read at once
        arguments = CrossEncoderTrainingArguments(**options)
        return CrossEncoderSteps(model=model, args=arguments, train_dataset=train, eval_dataset=validation, loss=loss)

    def score(self, model: Any, question: str, passages: list[str]) -> list[float]:
        """Logits."""
        import torch

        pairs = [[question, passage] for passage in passages]
        return model.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False).tolist()

    def score_published(self, folder: Path, question: str, passages: list[str]) -> list[float]:
        """As `rerank.model`."""
        from drag_ray.engine.encoders.reranker import load_reranker

        return load_reranker(RerankConfig(model=str(folder))).score(question, passages)

    def take_probe(self, row: dict[str, Any]) -> tuple[str, list[str]]:
        """All of it."""
        return row["query"], row["docs"]

    def diagnose(self, counts: Mapping[str, Any], rows: Iterable[Row]) -> str:
        """That it tells pages apart hardly better than who draws their order."""
        learned = [softmax(row["labels"]) for row in self.read(rows).rows]
        least = [-sum(share * math.log(share) for share in shares if share) for shares in learned]
        return diagnose_order(counts["eval_loss_after"], [math.log(len(shares)) for shares in learned], least)

    def write_note(self, folder: Path, row_options: Mapping[str, Any], index_fingerprint: str) -> None:
        """That it is a reranker, how much of a page it has read, and of which index."""
        write_note(folder, RerankerNote(page_chars=row_options.get("relevance_chars", 0), index_fingerprint=index_fingerprint))
