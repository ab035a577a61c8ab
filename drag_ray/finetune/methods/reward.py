"""A reward model: one that writes nothing, and gives the better of two replies the higher number.

After Bradley and Terry (https://arxiv.org/abs/2203.02155, equation 1), on all pairs of the replies to a prompt.
"""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

from drag_ray.engine.conversation import PromptCompletion, Row, read_conversation, take_columns
from drag_ray.engine.models.adapter import REWARD_TASK
from drag_ray.finetune.methods.method import AdapterMethod, TrainerOptions
from drag_ray.finetune.rows.tokenized_rows import RowTokenizer, TokenizedConversation, TokenizedRows, group_rows

if TYPE_CHECKING:
    import torch
    from transformers import Trainer
    from trl.trainer.reward_config import RewardConfig

    from drag_ray.finetune.rows.images import TrainingImages


class ScoredReply(PromptCompletion):
    """A reply and its score: only the order among those to one prompt counts."""

    score: float


class TokenizedScoredReply(TokenizedConversation):
    """A tokenized reply with what it is paired by."""

    prompt: str
    score: float


class RewardModelling(AdapterMethod):
    """Bradley and Terry's loss on scored replies."""

    row_types: ClassVar[Mapping[str, type[Row]]] = {"reward": ScoredReply}
    task: ClassVar[str] = REWARD_TASK
    trains_policy: ClassVar[bool] = False
    pipeline_tag: ClassVar[str] = "text-classification"
    purpose: ClassVar[str] = "gives rewards to search queries"

    def tokenize(self, rows: Iterable[Row], tokenizer: RowTokenizer) -> TokenizedRows:
        """Pairs {chosen, rejected, image_keys} of replies to the same prompt: each with each that scored less.

        Replies to a prompt all of whose replies scored the same teach nothing; they are left out and counted.
        """

        def tokenize_reply(row: Row) -> TokenizedScoredReply:
            reply = take_columns(row, ScoredReply, "a scored reply")
            conversation = read_conversation(reply)
            prompt = json.dumps([reply["prompt"], conversation.images])
            return {**tokenizer.tokenize(conversation), "prompt": prompt, "score": reply["score"]}

        scored = tokenizer.tokenize_rows(rows, tokenize_reply)
        pairs = TokenizedRows(num_too_long=scored.num_too_long)
        for group in group_rows(scored.rows, itemgetter("prompt")):
            of_group = _pair_by_score(group)
            pairs.rows += of_group
            pairs.num_without_advantage += 0 if of_group else len(group)
        return pairs

    def load_model(self, model: str, dtype: str, quantization: str) -> Any:
        """The base model with a head for rewards. Raises what `load_reward_model` does."""
        from drag_ray.engine.models.pretrained import load_reward_model

        return load_reward_model(model, dtype, quantization)

    def build_arguments(self, options: dict[str, Any]) -> "RewardConfig":
        """`RewardConfig`."""
        from trl.trainer.reward_config import RewardConfig

        return RewardConfig(**options)

    def build_trainer(self, options: TrainerOptions, images: "TrainingImages | None") -> "Trainer":
        """`RewardModelTrainer`."""
        from drag_ray.finetune.trainers.collator import PairCollator
        from drag_ray.finetune.trainers.pairs import RewardModelTrainer
        from drag_ray.finetune.trainers.shared_prefixes import can_share_prefixes
        from drag_ray.finetune.trainers.trained_tokens import find_base

        model = options["model"]
        shares = hasattr(find_base(model), "score") and can_share_prefixes(model)
        collator = PairCollator(options["processing_class"].pad_token_id, images, shares=shares)
        return RewardModelTrainer(**options, data_collator=collator)

    def score(self, model: Any, inputs: "dict[str, torch.Tensor]") -> "torch.Tensor":
        """The reward of each row."""
        from drag_ray.finetune.trainers.trained_tokens import list_features

        return model(**list_features(inputs)).logits.float()


def _pair_by_score(replies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    sides = [{name: reply[name] for name in ("input_ids", "labels")} for reply in replies]
    return [
        {
            "name": f"{replies[better]['name']} over {replies[worse]['name']}",
            "chosen": sides[better],
            "rejected": sides[worse],
            "image_keys": replies[better]["image_keys"],
        }
        for better, worse in itertools.permutations(range(len(replies)), 2)
        if replies[better]["score"] > replies[worse]["score"]
    ]
