"""KTO (https://arxiv.org/abs/2402.01306): single replies become likelier or less likely, as they are desirable or not.

The policy that the adapter starts from is the reference, as in DPO.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from drag_ray.engine.conversation import PromptCompletion, Row, read_conversation, take_columns
from drag_ray.engine.tokens import IGNORED_LABEL
from drag_ray.finetune.methods.method import Method, TrainerOptions
from drag_ray.finetune.tokenized_rows import RowTokenizer, TokenizedConversation, TokenizedRows

if TYPE_CHECKING:
    import torch
    from transformers import Trainer
    from trl.trainer.kto_config import KTOConfig

    from drag_ray.finetune.images import TrainingImages


class LabelledReply(PromptCompletion):
    """A reply; `label` says whether it is desirable."""

    label: bool


class TokenizedLabelledReply(TokenizedConversation):
    """A tokenized reply with its label."""

    label: bool


class KTO(Method):
    """TRL's KTO on labelled replies. Desirable and undesirable ones count alike, however many there are of each."""

    row_types: ClassVar[Mapping[str, type[Row]]] = {"kto": LabelledReply}

    beta: float = Field(default=0.1, gt=0)
    """how close the policy is kept to the one that it starts from; less lets it go further"""

    def check_batch_size(self, batch_size: int) -> None:
        """Refuse batches of one: see `KTOCollator`."""
        if batch_size == 1:
            raise ValueError(
                "batch_size 1: kto pairs the prompts of a batch with each other's replies. Set batch_size to 2 or more"
            )

    def tokenize(self, rows: Iterable[Row], tokenizer: RowTokenizer) -> TokenizedRows:
        """Replies {input_ids, labels, image_keys, label}."""

        def tokenize_reply(row: Row) -> TokenizedLabelledReply:
            reply = take_columns(row, LabelledReply, "a labelled reply")
            return {**tokenizer.tokenize(read_conversation(reply)), "label": reply["label"]}

        return tokenizer.tokenize_rows(rows, tokenize_reply)

    def build_arguments(self, options: dict[str, Any]) -> "KTOConfig":
        """`KTOConfig` with this beta."""
        from trl.trainer.kto_config import KTOConfig

        return KTOConfig(**options, beta=self.beta)

    def build_trainer(self, options: TrainerOptions, images: "TrainingImages | None") -> "Trainer":
        """TRL's trainer on batches of `KTOCollator`, with the weights of `balance`."""
        from trl.trainer.kto_trainer import KTOTrainer

        from drag_ray.finetune.finite_steps import FiniteSteps

        class FiniteKTOTrainer(FiniteSteps, KTOTrainer):
            """`KTOTrainer` on tokenized replies."""

        # The trainer takes rows in their order, in which those of a question stand together; a batch needs different prompts.
        seed = options["args"].seed
        options["train_dataset"] = options["train_dataset"].shuffle(seed=seed)
        options["eval_dataset"] = options["eval_dataset"] and options["eval_dataset"].shuffle(seed=seed)
        trainer = FiniteKTOTrainer(**options, data_collator=KTOCollator(options["processing_class"].pad_token_id, images))
        trainer.desirable_weight, trainer.undesirable_weight = balance(options["train_dataset"]["label"])
        return trainer


def balance(labels: Sequence[bool]) -> tuple[float, float]:
    """What a desirable and an undesirable reply count, so that both kinds count alike: the rarer one more than 1.

    Source: equation 8 of KTO.
    """
    num_desirable = sum(labels)
    num_undesirable = len(labels) - num_desirable
    if not num_desirable or not num_undesirable:
        return 1.0, 1.0
    return max(1.0, num_undesirable / num_desirable), max(1.0, num_desirable / num_undesirable)


class KTOCollator:
    """Pads replies {input_ids, labels, image_keys, label} into a batch as TRL's KTO takes it.

    Beside each conversation stands its prompt with the reply of another row, the one before: how likely such replies have become
    tells how far the policy has come as a whole (https://arxiv.org/abs/2402.01306, section 4.1).

    Args:
        pad_token_id: fills short rows.
        images: where images come from; None for rows without any.
    """

    def __init__(self, pad_token_id: int, images: "TrainingImages | None" = None) -> None:
        from drag_ray.finetune.collator import RowCollator

        self._collate = RowCollator(pad_token_id, images)
        self._pad = RowCollator(pad_token_id)
        self._images = images

    def __call__(self, rows: Sequence[dict[str, Any]]) -> "dict[str, torch.Tensor]":
        """`input_ids`, `attention_mask` and `completion_mask` of shape (rows, tokens), the same three with KL_ before their
        names, of the rows with another's reply; `label` of shape (rows,); and what images become.
        """
        import torch

        from drag_ray.finetune.collator import mark_replies

        batch = mark_replies(self._collate(rows))
        swapped = mark_replies(self._pad(_give_other_replies(rows)))
        if self._images and any(row["image_keys"] for row in rows):
            swapped |= self._images.mark_images(swapped["input_ids"])
        label = torch.tensor([row["label"] for row in rows])
        return batch | {f"KL_{name}": tensor for name, tensor in swapped.items()} | {"label": label}


def _give_other_replies(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each row's prompt with the reply of the row before it; the first row's with the reply of the last."""
    starts = [next(place for place, label in enumerate(row["labels"]) if label != IGNORED_LABEL) for row in rows]
    return [
        {name: rows[own][name][: starts[own]] + rows[other][name][starts[other] :] for name in ("input_ids", "labels")}
        for own, other in zip(range(len(rows)), range(-1, len(rows) - 1), strict=True)
    ]
