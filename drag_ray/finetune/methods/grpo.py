"""GRPO (https://arxiv.org/abs/2402.03300) on recorded trajectories: reinforcement learning from all that the policy did.

A pass over the loop (collect, process, format, finetune) is one round, and `merged/` is the policy of the next.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from drag_ray.engine.conversation import PromptCompletion, Row, read_conversation, take_columns
from drag_ray.finetune.methods.method import Method, TrainerOptions
from drag_ray.finetune.tokenized_rows import RowTokenizer, TokenizedConversation, TokenizedRows

if TYPE_CHECKING:
    from transformers import Trainer
    from trl.trainer.sft_config import SFTConfig

    from drag_ray.finetune.images import TrainingImages


class RewardedStep(PromptCompletion):
    """A reply in the tokens that the policy drew, and how much better its trajectory was than others of its question."""

    completion_token_ids: list[int]
    advantage: float


class TokenizedStep(TokenizedConversation):
    """The tokens of a prompt and of the reply as it was drawn."""

    advantage: float


class GRPO(Method):
    """Replies become likelier or less likely by how much better than others they were."""

    row_types: ClassVar[Mapping[str, type[Row]]] = {"rl_steps": RewardedStep}

    clip_range: float = Field(default=0.2, gt=0, lt=1)
    """by which share a token may become likelier or less likely before it is left alone"""
    kl_weight: float = Field(default=0.04, ge=0)
    """what it costs to go away from the policy that collected; 0 lets clipping alone hold it"""

    def tokenize(self, rows: Iterable[Row], tokenizer: RowTokenizer) -> TokenizedRows:
        """Steps {input_ids, labels, image_keys, advantage}. Those without advantage teach nothing: left out, and counted."""

        def tokenize_step(row: Row) -> TokenizedStep | None:
            step = take_columns(row, RewardedStep, "a step")
            if step["advantage"] == 0:
                return None
            drawn = tokenizer.tokenize_drawn(read_conversation(step), step["completion_token_ids"])
            return {**drawn, "advantage": step["advantage"]}

        return tokenizer.tokenize_rows(rows, tokenize_step)

    def build_arguments(self, options: dict[str, Any]) -> "SFTConfig":
        """`SFTConfig` for rows that are tokenized."""
        from drag_ray.finetune.trained_tokens import build_arguments

        return build_arguments(options)

    def build_trainer(self, options: TrainerOptions, images: "TrainingImages | None") -> "Trainer":
        """`PolicyGradientTrainer`: TRL's own GRPO samples its replies itself, which here the collect stage has done."""
        from drag_ray.finetune.collator import RowCollator
        from drag_ray.finetune.policy_gradient import PolicyGradientTrainer

        collator = RowCollator(options["processing_class"].pad_token_id, images, number="advantage")
        return PolicyGradientTrainer(**options, data_collator=collator, clip_range=self.clip_range, kl_weight=self.kl_weight)
