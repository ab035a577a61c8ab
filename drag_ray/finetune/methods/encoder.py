"""Methods that train all weights of a small encoder, by the trainers of sentence-transformers."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypedDict

from pydantic import Field

from drag_ray.engine.conversation import Row
from drag_ray.engine.models.embedded import MINILM
from drag_ray.errors import DataError
from drag_ray.finetune.methods.judged_pages import NOTHING_TO_COMPARE, JudgedPassage, name_question, read_passage
from drag_ray.finetune.methods.method import Method
from drag_ray.finetune.rows.tokenized_rows import TokenizedRows, group_rows
from drag_ray.storage.object_store import NameOrUri

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import Trainer


_EVIDENCE_LABEL = 16.0
"""Losses take labels for logits: e to the -16 is left for pages that are no evidence."""
_LEAST_SHARE = 1e-30
"""of a page, whose logarithm is finite"""


class Probe(TypedDict):
    """A question, some passages, and the scores that a trained model gives them: what is written is to give the same."""

    question: str
    passages: list[str]
    scores: list[float]


class JudgedQuestion(NamedTuple):
    """A question with its passages, those of the evidence first.

    Attributes:
        num_evidence: how many are evidence; 0 where only a teacher tells pages apart.
        scores: of a teacher for each passage; None without a teacher, empty where it tells no pages apart.
    """

    name: str
    question: str
    passages: list[str]
    num_evidence: int
    scores: list[float] | None


class EncoderMethod(Method):
    """A method that learns from all pages of a question at once. `option`: that names the model which training starts from."""

    row_types: ClassVar[Mapping[str, type[Row]]] = {"relevance": JudgedPassage}
    trains_adapter: ClassVar[bool] = False
    trains_policy: ClassVar[bool] = False
    why_nothing_is_learned: ClassVar[str] = NOTHING_TO_COMPARE
    library: ClassVar[str] = "sentence-transformers"
    option: ClassVar[str]

    model: NameOrUri = MINILM
    """the model that training starts from, as a folder, a Hugging Face name or a place in an object store; embedded-minilm is
    all-MiniLM-L6-v2 (22 million parameters), which comes with the extra `demo`"""
    max_tokens: int = Field(default=256, ge=16)
    """tokens that the model reads at once, in training and later; longer texts are cut off. It cannot exceed the model's own
    limit"""
    distillation: float = Field(default=0.8, ge=0.0, le=1.0)
    """weight of a teacher's scores of the passages (format.teacher); the labels have the rest. For a question without evidence
    only the scores count. 0.8 is close to SimLM; 0 ignores them"""

    def find_start_model(self, engine_model: str) -> str:
        """Its own."""
        return self.model

    def read(self, rows: Iterable[Row]) -> TokenizedRows:
        """Questions with texts. Those of which neither labels nor a teacher tell pages apart teach no order; their pages are
        counted. Raises DataError where a row is not a judged passage, or a score is not finite."""
        found = TokenizedRows()
        for number, pages in enumerate(group_rows(rows, name_question), start=1):
            judged = self.judge(f"question {number}", pages)
            if judged.num_evidence or judged.scores:
                found.rows += self.build_rows(judged)
                found.num_distilled += bool(judged.scores)
            else:
                found.num_without_advantage += len(pages)
        return found

    def judge(self, name: str, pages: Sequence[Row]) -> JudgedQuestion:
        """A question of its rows, without other pages that read as its evidence does. Raises what `read` does."""
        found = [read_passage(page) for page in pages]
        evidence = {page["passage"] for page in found if page["is_evidence"]}
        told = [page for page in found if page["is_evidence"] or page["passage"] not in evidence]
        passages = sorted(told, key=lambda page: not page["is_evidence"])
        kinds = [page["is_evidence"] for page in passages]
        return JudgedQuestion(
            name=name,
            question=passages[0]["question"],
            passages=[page["passage"] for page in passages],
            num_evidence=kinds.count(True) if len(set(kinds)) == 2 else 0,
            scores=read_scores(passages) if self.distillation else None,
        )

    def count(self, rows: TokenizedRows) -> dict[str, int]:
        """Questions that a teacher has taught."""
        return {"questions_distilled": rows.num_distilled} if rows.num_distilled else {}

    @abstractmethod
    def build_rows(self, judged: JudgedQuestion) -> list[dict[str, Any]]:
        """Rows of the trainer's dataset, each with the question's `name`."""

    @abstractmethod
    def load(self, folder: str, device: str) -> Any:
        """The model to train, in float32. Raises ConfigError where it cannot be read as one of these."""

    @abstractmethod
    def build_trainer(self, model: Any, options: dict[str, Any], train: "Dataset", validation: "Dataset | None") -> "Trainer":
        """The trainer, one of `trainers.encoders`."""

    @abstractmethod
    def score(self, model: Any, question: str, passages: list[str]) -> list[float]:
        """The model's scores of passages, more is better."""

    @abstractmethod
    def score_published(self, folder: Path, question: str, passages: list[str]) -> list[float]:
        """The same by the reader that searches with a model in a folder. Raises ConfigError where it cannot be read."""

    @abstractmethod
    def take_probe(self, row: dict[str, Any]) -> tuple[str, list[str]]:
        """Question and passages of a row of the dataset."""


def read_scores(passages: Sequence[JudgedPassage]) -> list[float] | None:
    """The teacher's scores of a question's passages: None without a teacher, none where one is missing or all are equal. Raises
    DataError where one is not finite."""
    found = [passage["score"] for passage in passages if "score" in passage]
    if not found:
        return None
    scores = [score for score in found if score is not None]
    if not all(map(math.isfinite, scores)):
        raise DataError(
            f"question {passages[0]['question'][:200]!r}: a score of its passages is not a finite number. Write the rows again, "
            "python jobs/format.py, with --format.teacher.dtype float32, or train with a distillation of 0."
        )
    return scores if len(scores) == len(passages) and len(set(scores)) > 1 else []


def mix_labels(num_evidence: int, num_others: int, scores: Sequence[float], share: float) -> list[float]:
    """Logits of the distribution that is learned over a question's passages, those of the evidence first.

    Args:
        num_evidence: how many are evidence; 0 where nobody says.
        num_others: how many are none.
        scores: of a teacher; none without.
        share: what these count.
    """
    labels = [_EVIDENCE_LABEL] * num_evidence + [0.0] * num_others
    if not scores:
        return labels
    if not num_evidence:
        return list(scores)
    mixed = zip(softmax(labels), softmax(scores), strict=True)
    return [math.log((1 - share) * label + share * score + _LEAST_SHARE) for label, score in mixed]


def softmax(logits: Sequence[float]) -> list[float]:
    """The distribution of logits."""
    highest = max(logits)
    weights = [math.exp(logit - highest) for logit in logits]
    total = sum(weights)
    return [weight / total for weight in weights]
