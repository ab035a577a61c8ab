"""Supervised fine-tuning: replies are learned as they stand, each as often as its row's weight says."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from drag_ray.engine.conversation import PromptCompletion, Row, TrainedTurns, read_conversation
from drag_ray.engine.models.tokens import IGNORED_LABEL, Mask
from drag_ray.errors import DataError
from drag_ray.finetune.methods.method import AdapterMethod, TrainerOptions
from drag_ray.finetune.rows.tokenized_rows import RowTokenizer, TokenizedConversation, TokenizedRows

if TYPE_CHECKING:
    from transformers import Trainer

    from drag_ray.finetune.rows.images import TrainingImages

_ROW_TYPES = {
    "sft_query": PromptCompletion,
    "sft_trajectory": TrainedTurns,
    "sft_context": PromptCompletion,
    "rejection": TrainedTurns,
}

if TYPE_CHECKING:
    SupervisedRows = str
else:
    SupervisedRows = Literal[tuple(_ROW_TYPES)]


class WeightedConversation(TokenizedConversation):
    """A tokenized conversation, and how often its tokens count in the loss, where those of all rows count once on average."""

    weight: float


class SFT(AdapterMethod):
    """TRL's supervised trainer on conversations, of whose replies a mask lets a part through."""

    row_types: ClassVar[Mapping[str, type[Row]]] = _ROW_TYPES
    uses_dropout: ClassVar[bool] = True

    rows: SupervisedRows = "sft_query"
    """training rows to learn from, a folder of the format stage"""
    mask: Mask = "assistant"
    """trained tokens of a learned reply; search_only: its search; search_think: the reasoning too; assistant: all of it; none:
    the prompts too"""
    packing: bool = True
    """put the finetune.batch_size rows of a batch one after the other instead of padding them to the longest, if none shows an
    image and all layers of the model attend to the whole context; the result is the same"""

    @property
    def row_format(self) -> str:
        """The format that `rows` names."""
        return self.rows

    def tokenize(self, rows: Iterable[Row], tokenizer: RowTokenizer) -> TokenizedRows:
        """Whole conversations {input_ids, labels, image_keys, weight}.

        The weights are divided by their mean over all trained tokens. They count in a batch of any size, even of one row, and
        learning rate and loss are those of rows without weights.

        Raises what `tokenize_rows` does, and DataError for weights that cannot be.
        """

        def tokenize_row(row: Row) -> WeightedConversation:
            conversation = read_conversation(row)
            if not 0 <= conversation.weight < math.inf:
                raise DataError(
                    f"a training row has the weight {conversation.weight}; expected a number that is 0 or more. "
                    "Run: python jobs/format.py"
                )
            return {**tokenizer.tokenize(conversation, self.mask), "weight": conversation.weight}

        tokenized = tokenizer.tokenize_rows(rows, tokenize_row)
        scale = _compute_mean_weight(tokenized.rows)
        for row in tokenized.rows:
            row["weight"] /= scale
        return tokenized

    def build_trainer(self, options: TrainerOptions, images: "TrainingImages | None") -> "Trainer":
        """TRL's trainer with a loss of our own, in which rows have weights."""
        from drag_ray.finetune.trainers.collator import RowCollator
        from drag_ray.finetune.trainers.packed_rows import keep_rows_apart
        from drag_ray.finetune.trainers.trained_tokens import TrainedTokensTrainer

        packs = self.packing and images is None and keep_rows_apart(options["model"])
        if packs:  # which hold no padding; it would be told by its token, which may be the end of a text too
            options["args"].include_num_input_tokens_seen = "all"
        collator = RowCollator(options["processing_class"].pad_token_id, images, number="weight", packs=packs)
        return TrainedTokensTrainer(**options, data_collator=collator)


def _compute_mean_weight(rows: Sequence[Mapping[str, Any]]) -> float:
    """Of the trained tokens, each of which has its row's weight; 1 where there are none."""
    counts = [sum(label != IGNORED_LABEL for label in row["labels"][1:]) for row in rows]
    total = math.fsum(row["weight"] * count for row, count in zip(rows, counts, strict=True))
    if rows and not total:
        raise DataError("all training rows have the weight 0, so there is nothing to learn. Run: python jobs/format.py")
    return total / sum(counts) if rows else 1.0
