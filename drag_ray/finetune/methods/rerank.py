"""A reranker: a model that reads a question with a page, and says whether the page answers it.

Supervised, a pair at a time, as monoT5 (Nogueira et al., 2020, https://arxiv.org/abs/2003.06713); pages are put in order by the
log-odds of `yes` against `no`.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

from pydantic import Field

from drag_ray.engine.conversation import Conversation, Row, take_columns
from drag_ray.engine.relevance import RerankerNote, write_judgement, write_note
from drag_ray.finetune.methods.method import Method, TrainerOptions
from drag_ray.finetune.methods.sft import SFT, WeightedConversation
from drag_ray.finetune.tokenized_rows import RowTokenizer, TokenizedRows
from drag_ray.search.config import RELEVANCE_INSTRUCTION

if TYPE_CHECKING:
    from transformers import Trainer
    from trl.trainer.sft_config import SFTConfig

    from drag_ray.finetune.images import TrainingImages

_SUPERVISED = SFT()
_LEARNED = 0.9
"""of the loss that the shares alone give: above it models of 135M and 1.5B parameters ended that had learned next to nothing"""


class JudgedPassage(TypedDict):
    """A question with a part of a page, and whether that page is evidence."""

    question: str
    passage: str
    is_evidence: bool


class Rerank(Method):
    """TRL's supervised trainer on the answers yes and no."""

    row_types: ClassVar[Mapping[str, type[Row]]] = {"relevance": JudgedPassage}
    uses_dropout: ClassVar[bool] = True
    purpose: ClassVar[str] = "tells pages that answer a question from others"
    is_asked_as_agent: ClassVar[bool] = False

    instruction: str = Field(default=RELEVANCE_INSTRUCTION, min_length=1)
    """what the model is told of its task, in training and, by a note beside the adapter, where it ranks"""

    def tokenize(self, rows: Iterable[Row], tokenizer: RowTokenizer) -> TokenizedRows:
        """Conversations {input_ids, labels, image_keys, weight} whose one reply is the answer.

        Raises what `tokenize_rows` does.
        """

        def tokenize_row(row: Row) -> WeightedConversation:
            judged = take_columns(row, JudgedPassage, "a judged passage")
            messages = write_judgement(judged["question"], judged["passage"], self.instruction, is_relevant=judged["is_evidence"])
            return {**tokenizer.tokenize(Conversation(messages, (len(messages) - 1,))), "weight": 1.0}

        return tokenizer.tokenize_rows(rows, tokenize_row)

    def build_arguments(self, options: dict[str, Any]) -> "SFTConfig":
        """As for `sft`."""
        return _SUPERVISED.build_arguments(options)

    def build_trainer(self, options: TrainerOptions, images: "TrainingImages | None") -> "Trainer":
        """As for `sft`."""
        return _SUPERVISED.build_trainer(options, images)

    def find_doubt(self, counts: Mapping[str, Any], rows: Iterable[Row]) -> str:
        """That it tells pages apart hardly better than who knows no more than how many of them are evidence."""
        kinds = [take_columns(row, JudgedPassage, "a judged passage")["is_evidence"] for row in rows]
        if not kinds or counts["eval_loss_after"] is None:
            return ""
        share = sum(kinds) / len(kinds)
        of_shares = -sum(part * math.log(part) for part in (share, 1 - share) if part)
        # The tokens of an answer are the word and what ends the reply, which is soon known.
        loss = counts["eval_loss_after"] * counts["trained_tokens"] / counts["rows"]
        if not of_shares or loss < _LEARNED * of_shares:
            return ""
        return (
            f"the reranker has hardly learned to tell pages apart: the loss of its answers on validation rows is {loss:.3f}, and "
            f"{of_shares:.3f} if it said of each page how many are evidence. Its order may be worse than that of the search: "
            "look at `rerank` in an evaluation first. More questions, more epochs or a larger model may help."
        )

    def write_note(self, adapter_dir: Path, row_options: Mapping[str, Any]) -> None:
        """That the adapter is a reranker, what it is told, and how much of a page it has read."""
        write_note(adapter_dir, RerankerNote(instruction=self.instruction, page_chars=row_options.get("relevance_chars", 0)))
