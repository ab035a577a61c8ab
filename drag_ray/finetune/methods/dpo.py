"""DPO (https://arxiv.org/abs/2305.18290): of two replies to a prompt the better one becomes the likelier.

The policy that the adapter starts from is the reference, so the pairs are best its own: of a policy that was tuned and collected
before (engine.model), with a tenth of the learning rate.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from drag_ray.engine.conversation import Row, ShownRow, read_conversation, take_columns
from drag_ray.engine.generate import Message
from drag_ray.finetune.methods.method import AdapterMethod, TrainerOptions
from drag_ray.finetune.rows.tokenized_rows import RowTokenizer, TokenizedPair, TokenizedRows

if TYPE_CHECKING:
    from transformers import Trainer

    from drag_ray.finetune.rows.images import TrainingImages


class PreferencePair(ShownRow):
    """Two replies to one prompt."""

    prompt: list[Message]
    chosen: list[Message]
    rejected: list[Message]


class DPO(AdapterMethod):
    """DPO on preference pairs."""

    row_types: ClassVar[Mapping[str, type[Row]]] = {"dpo": PreferencePair}

    beta: float = Field(default=0.1, gt=0)
    """how close the policy is kept to its start; a lower value lets it move further"""

    def tokenize(self, rows: Iterable[Row], tokenizer: RowTokenizer) -> TokenizedRows:
        """Pairs {chosen, rejected, image_keys}: each side is the prompt with one of the replies, which is compared as a whole."""

        def tokenize_pair(row: Row) -> TokenizedPair:
            pair = take_columns(row, PreferencePair, "a preference pair")
            chosen = tokenizer.tokenize(read_conversation({**pair, "completion": pair["chosen"]}))
            rejected = tokenizer.tokenize(read_conversation({**pair, "completion": pair["rejected"]}))
            return {"chosen": chosen, "rejected": rejected, "image_keys": chosen["image_keys"]}

        return tokenizer.tokenize_rows(rows, tokenize_pair)

    def build_trainer(self, options: TrainerOptions, images: "TrainingImages | None") -> "Trainer":
        """`PreferenceTrainer` with this beta."""
        from drag_ray.finetune.trainers.collator import PairCollator
        from drag_ray.finetune.trainers.pairs import PreferenceTrainer
        from drag_ray.finetune.trainers.shared_prefixes import can_share_prefixes

        collator = PairCollator(options["processing_class"].pad_token_id, images, shares=can_share_prefixes(options["model"]))
        return PreferenceTrainer(**options, data_collator=collator, beta=self.beta)
