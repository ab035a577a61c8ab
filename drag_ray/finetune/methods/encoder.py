"""Methods that train all weights of a small encoder, by the trainers of sentence-transformers."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

from pydantic import Field

from drag_ray.engine.conversation import Row
from drag_ray.engine.models.embedded import MINILM
from drag_ray.finetune.methods.judged_pages import NOTHING_TO_COMPARE, JudgedPassage, name_question, read_passage
from drag_ray.finetune.methods.method import Method
from drag_ray.finetune.tokenized_rows import TokenizedRows, group_rows
from drag_ray.storage.object_store import NameOrUri

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import Trainer


class Probe(TypedDict):
    """A question, some passages, and the scores that a trained model gives them: what is written is to give the same."""

    question: str
    passages: list[str]
    scores: list[float]


class JudgedQuestion(TypedDict):
    """A question with its passages, those of the evidence first."""

    name: str
    question: str
    evidence: list[str]
    others: list[str]


class EncoderMethod(Method):
    """A method that learns from all pages of a question at once.

    Attributes:
        option: that names the model which training starts from.
    """

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
    """tokens that the model reads at once, in training and after it; the end of longer texts is cut off. At most what it was made
    for"""

    def find_start_model(self, engine_model: str) -> str:
        """Its own."""
        return self.model

    def read(self, rows: Iterable[Row]) -> TokenizedRows:
        """Questions with texts. Those without evidence, or with nothing else, teach no order; their pages are counted.

        Raises:
            DataError: a row is not a judged passage.
        """
        found = TokenizedRows()
        for number, pages in enumerate(group_rows(rows, name_question), start=1):
            passages = [read_passage(page) for page in pages]
            texts = {kind: [page["passage"] for page in passages if page["is_evidence"] is kind] for kind in (True, False)}
            if all(texts.values()):
                judged = JudgedQuestion(
                    name=f"question {number}", question=passages[0]["question"], evidence=texts[True], others=texts[False]
                )
                found.rows += self.build_rows(judged)
            else:
                found.num_without_advantage += len(passages)
        return found

    @abstractmethod
    def build_rows(self, judged: JudgedQuestion) -> list[dict[str, Any]]:
        """Rows of the trainer's dataset, each with the question's `name`."""

    @abstractmethod
    def load(self, folder: str, device: str) -> Any:
        """The model to train, in float32.

        Raises:
            ConfigError: it cannot be read as one of these.
        """

    @abstractmethod
    def build_trainer(self, model: Any, options: dict[str, Any], train: "Dataset", validation: "Dataset | None") -> "Trainer":
        """The trainer, one of `trainers.encoders`."""

    @abstractmethod
    def score(self, model: Any, question: str, passages: list[str]) -> list[float]:
        """The model's scores of passages, more is better."""

    @abstractmethod
    def score_published(self, folder: Path, question: str, passages: list[str]) -> list[float]:
        """The same by the reader that searches with a model in a folder.

        Raises:
            ConfigError: it cannot be read.
        """

    @abstractmethod
    def take_probe(self, row: dict[str, Any]) -> tuple[str, list[str]]:
        """Question and passages of a row of the dataset."""
