"""An embedding model: vectors of questions and pages, of which those that belong together are to be close.

It learns from the evidence of each question against the pages of the other questions in its batch and those that a search has
found beside it: the loss MultipleNegativesRanking (Henderson et al., 2017, https://arxiv.org/abs/1705.00652) of
sentence-transformers, whose vectors may be of use when they are cut, too (Kusupati et al., 2022, https://arxiv.org/abs/2205.13147).
Where a teacher has scored the pages, its distribution over those of a row is learned beside (DistillKLDiv of the same library;
Wang et al., 2022, https://arxiv.org/abs/2207.02578).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from drag_ray.engine.models.relevance import EmbedderNote, write_note
from drag_ray.errors import TrainError
from drag_ray.finetune.methods.encoder import EncoderMethod, JudgedQuestion, mix_labels
from drag_ray.search.config import EmbeddingConfig

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import Trainer


class Embed(EncoderMethod):
    """A question is closer to its evidence than to other pages."""

    option: ClassVar[str] = "finetune.embed.model"
    pipeline_tag: ClassVar[str] = "sentence-similarity"
    purpose: ClassVar[str] = "makes vectors of questions and pages"

    negatives: int = Field(default=4, ge=0)
    """pages without evidence in a row, of those in the rows of the question (relevance_pages), repeated if there are fewer. 0
    learns only from the other questions of a batch"""
    dimensions: tuple[int, ...] = ()
    """shorter lengths to which vectors may be cut and still compare well, for example [256, 128]; empty trains the whole
    length only"""

    def build_rows(self, judged: JudgedQuestion) -> list[dict[str, Any]]:
        """One for each page of the evidence, or for the teacher's best: `anchor`, `positive`, `negative_1` and so on.

        With a teacher and negatives they have `labels`, the logits of what is learned over the pages in this order.
        """
        texts, scores = judged.passages, judged.scores
        evidence = list(range(judged.num_evidence)) or [max(range(len(texts)), key=(scores or []).__getitem__)]
        others = [place for place in range(len(texts)) if place not in evidence]
        rows: list[dict[str, Any]] = []
        for positive in evidence:
            places = [positive, *(others[number % len(others)] for number in range(self.negatives))]
            row: dict[str, Any] = {"anchor": judged.question, "positive": texts[positive], "name": judged.name}
            row |= {f"negative_{number}": texts[place] for number, place in enumerate(places[1:], start=1)}
            if scores is not None and self.negatives:
                row["labels"] = [scores[place] for place in places] if scores else mix_labels(1, self.negatives, [], 0.0)
            rows.append(row)
        return rows

    def load(self, folder: str, device: str) -> Any:
        """As it is."""
        from sentence_transformers import SentenceTransformer

        from drag_ray.engine.encoders.loading import check_vocabulary, limit_tokens, load_encoder

        model = load_encoder(SentenceTransformer, Path(folder), self.option, "float32", device)
        check_vocabulary(model, self.option, folder)
        limit_tokens(model, self.max_tokens)
        return model

    def build_trainer(self, model: Any, options: dict[str, Any], train: "Dataset", validation: "Dataset | None") -> "Trainer":
        """That of the library; no page stands twice in a batch, where it would be evidence and none."""
        from sentence_transformers import SentenceTransformerTrainingArguments
        from sentence_transformers.base.sampler import BatchSamplers
        from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss

        from drag_ray.finetune.trainers.encoders import DistilledRanking, EmbedderSteps

        whole = model.get_embedding_dimension()
        if wrong := [size for size in self.dimensions if not 0 < size < whole]:
            raise TrainError(
                f"finetune.embed.dimensions {wrong[0]}: the vectors of {self.model!r} have {whole}, so expected less."
            )
        loss: Any = MultipleNegativesRankingLoss(model)
        if "labels" in train.column_names:
            loss = DistilledRanking(model, loss, self.distillation)
        if self.dimensions:
            loss = MatryoshkaLoss(model, loss, [whole, *self.dimensions])
        arguments = SentenceTransformerTrainingArguments(**options, batch_sampler=BatchSamplers.NO_DUPLICATES)
        return EmbedderSteps(model=model, args=arguments, train_dataset=train, eval_dataset=validation, loss=loss)

    def score(self, model: Any, question: str, passages: list[str]) -> list[float]:
        """Cosines."""
        asked = model.encode_query([question], show_progress_bar=False)
        return model.similarity(asked, model.encode_document(passages, show_progress_bar=False))[0].tolist()

    def score_published(self, folder: Path, question: str, passages: list[str]) -> list[float]:
        """As `embedding.model`."""
        from drag_ray.engine.encoders.embedding import Embedder

        embedder = Embedder(EmbeddingConfig(model=str(folder), window_tokens=self.max_tokens, overlap_tokens=0))
        return (embedder.embed_pages(passages) @ embedder.embed_queries([question])[0]).tolist()

    def write_note(self, folder: Path, row_options: Mapping[str, Any], index_fingerprint: str) -> None:
        """Of which index its pages were."""
        write_note(folder, EmbedderNote(index_fingerprint=index_fingerprint))

    def take_probe(self, row: dict[str, Any]) -> tuple[str, list[str]]:
        """Its evidence and what stands beside it, itself where nothing does."""
        beside = [row[f"negative_{place + 1}"] for place in range(self.negatives)] or [row["anchor"]]
        return row["anchor"], [row["positive"], *beside]
