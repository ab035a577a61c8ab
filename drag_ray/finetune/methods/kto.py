"""KTO (https://arxiv.org/abs/2402.01306): single replies become likelier or less likely, as they are desirable or not.

The policy that the adapter starts from is the reference, as in DPO.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from drag_ray.engine.conversation import PromptCompletion, Row, read_conversation, take_columns
from drag_ray.engine.tokens import IGNORED_LABEL
from drag_ray.errors import DataError
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
        """Refuse batches of one, as TRL does: how far the policy has come is the mean over a batch."""
        if batch_size == 1:
            raise ValueError(
                "batch_size 1: kto estimates from the rows of a batch how far the policy has come as a whole. "
                "Set batch_size to 2 or more"
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
        """TRL's trainer on batches of `KTOCollator`, with the weights of `balance`. Raises what `pair_replies` does."""
        from datasets import Dataset
        from trl.trainer.kto_trainer import KTOTrainer

        from drag_ray.finetune.adapter_trainer import AdapterTrainer

        class KTOAdapterTrainer(AdapterTrainer, KTOTrainer):
            """`KTOTrainer` on tokenized replies."""

        # The trainer takes rows in their order, in which those of a question stand together.
        seed = options["args"].seed
        train_rows: list[Any] = list(options["train_dataset"].shuffle(seed=seed))
        options["train_dataset"] = Dataset.from_list(pair_replies(train_rows))
        if options["eval_dataset"]:
            held_out: list[Any] = list(options["eval_dataset"].shuffle(seed=seed))
            options["eval_dataset"] = Dataset.from_list(pair_replies(held_out, train_rows))
        trainer = KTOAdapterTrainer(**options, data_collator=KTOCollator(options["processing_class"].pad_token_id, images))
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
    """Pads rows of `pair_replies` {input_ids, labels, image_keys, label, other_reply} into a batch as TRL's KTO takes it.

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
        swapped = mark_replies(self._pad([row["other_reply"] for row in rows]))
        if self._images and any(row["image_keys"] for row in rows):
            swapped |= self._images.mark_images(swapped["input_ids"])
        label = torch.tensor([row["label"] for row in rows])
        return batch | {f"KL_{name}": tensor for name, tensor in swapped.items()} | {"label": label}


def pair_replies(rows: Sequence[dict[str, Any]], earlier: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """The rows, each with an `other_reply` {input_ids, labels}: its prompt with the reply of the row before it that has another
    prompt; where all have the same one, of the row before it. The first row comes after the last one.

    How likely such replies have become tells how far the policy has come as a whole (https://arxiv.org/abs/2402.01306, section
    4.1). Within a batch the last one of an epoch could be a row alone, whose own reply says nothing of that.

    Args:
        rows: {input_ids, labels, image_keys}.
        earlier: rows that the first ones may take replies of.

    Raises:
        DataError: there is no other row.
    """
    everyone = [*earlier, *rows]
    if len(everyone) < 2:
        raise DataError("kto needs two rows at least, to see how likely the reply of one is after the prompt of the other.")
    prompts = [(row["input_ids"][: _find_reply(row)], row["image_keys"]) for row in everyone]

    def find_other(place: int) -> dict[str, Any]:
        before = range(place - 1, place - len(everyone), -1)
        return everyone[next((other for other in before if prompts[other] != prompts[place]), place - 1)]

    return [{**row, "other_reply": _replace_reply(row, find_other(place))} for place, row in enumerate(rows, start=len(earlier))]


def _replace_reply(row: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    own_start, other_start = _find_reply(row), _find_reply(other)
    return {name: row[name][:own_start] + other[name][other_start:] for name in ("input_ids", "labels")}


def _find_reply(row: Mapping[str, Any]) -> int:
    return next(place for place, label in enumerate(row["labels"]) if label != IGNORED_LABEL)
