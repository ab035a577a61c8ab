"""GRPO (https://arxiv.org/abs/2402.03300) and its relatives (`finetune.losses`): reinforcement learning from all that was done.

On recorded trajectories a pass over the loop (collect, process, format, finetune) is one round, and its adapter (or `merged/`)
writes in the next. The stage `rl` learns with the same options while it collects.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import pstdev
from typing import TYPE_CHECKING, Any, ClassVar, NotRequired

from pydantic import Field

from drag_ray.engine.conversation import PromptCompletion, Row, read_conversation, take_columns
from drag_ray.engine.models.tokens import IGNORED_LABEL
from drag_ray.errors import DataError
from drag_ray.finetune.losses import LOSSES, Aggregation, LossName, LossOptions
from drag_ray.finetune.methods.method import AdapterMethod, TrainerOptions
from drag_ray.finetune.rows.tokenized_rows import LeftOut, RowTokenizer, TokenizedConversation, TokenizedRows

if TYPE_CHECKING:
    import torch
    from transformers import Trainer

    from drag_ray.finetune.rows.images import TrainingImages

LEAST_ADVANTAGE = 1e-6
"""Equal rewards may differ by rounding, and then they differ from their mean."""

_OAPL_BETA = 0.01
"""Value in advantage of one nat between a reply's log-probabilities now and when it was sampled; the lower, the further an
advantage moves the policy."""


class RewardedStep(PromptCompletion):
    """A reply in the tokens that the policy drew, and by how much its trajectory was better than others of its question."""

    completion_token_ids: list[int]
    advantage: float
    completion_logprobs: NotRequired[list[float] | None]
    """natural logarithms at temperature 1, as the engine had them; none if it was not asked"""
    temperature: NotRequired[float | None]
    """at which the tokens were drawn"""


class TokenizedStep(TokenizedConversation):
    """The tokens of a prompt and of the reply as it was drawn."""

    advantage: float
    engine_log_probabilities: list[float]
    temperature: float


class GRPO(AdapterMethod):
    """Replies become likelier or less likely by how much better than others they were."""

    row_types: ClassVar[Mapping[str, type[Row]]] = {"rl_steps": RewardedStep}
    needs_tokens: ClassVar[bool] = True

    loss: LossName = "grpo"
    """grpo: ratios of tokens, clipped; rloo: ratios of whole replies; reinforce_pp: as grpo, with advantages in units of their
    deviation; oapl: regression, which tolerates replies of policies that are many steps old. Rows need a format.baseline of
    mean, others (rloo) or optimal (oapl)"""
    aggregation: Aggregation = "token"
    """units that count equally: tokens, or replies of any length; rloo and oapl always use replies"""
    clip_range: float = Field(default=0.2, gt=0, lt=1)
    """relative change of a token's probability, in either direction, beyond which it is no longer trained"""
    clip_high: float = Field(default=0.0, ge=0)
    """the same limit upwards: above clip_range, unlikely tokens are explored for longer; 0 takes clip_range"""
    kl_weight: float = Field(default=0.04, ge=0)
    """price of the distance from the policy that training starts from; 0 relies on clipping only"""
    max_engine_ratio: float = Field(default=3.0, gt=0)
    """largest weight of a token that is likelier to the initial trained model than to the engine that sampled it, if rows have
    the engine's log-probabilities (engine.logprobs)"""

    @property
    def loss_options(self) -> LossOptions:
        """The numbers of its loss."""
        return LossOptions(self.clip_range, self.clip_high or self.clip_range, self.max_engine_ratio, _OAPL_BETA)

    def tokenize(self, rows: Iterable[Row], tokenizer: RowTokenizer) -> TokenizedRows:
        """Steps {input_ids, labels, image_keys, advantage, engine_log_probabilities, temperature}. The log-probabilities are
        those of the drawn tokens, or none; a temperature that is not known, or 0, is 1.

        Steps without advantage teach nothing, and those without tokens were drawn by no policy: left out, and counted.

        Raises what `tokenize_rows` does, and DataError where no step has tokens.
        """

        def tokenize_step(row: Row) -> TokenizedStep | LeftOut:
            step = take_columns(row, RewardedStep, "a step")
            drawn, log_probabilities = step["completion_token_ids"], step.get("completion_logprobs") or []
            if not drawn:
                return LeftOut.OFF_POLICY
            if abs(step["advantage"]) < LEAST_ADVANTAGE:
                return LeftOut.WITHOUT_ADVANTAGE
            if log_probabilities and len(log_probabilities) != len(drawn):
                raise DataError(
                    f"a step has {len(log_probabilities)} completion_logprobs for {len(drawn)} completion_token_ids; expected "
                    "one for each, or none. Run: python jobs/format.py"
                )
            return {
                **tokenizer.tokenize_drawn(read_conversation(step), drawn),
                "advantage": step["advantage"],
                "engine_log_probabilities": log_probabilities,
                "temperature": step.get("temperature") or 1.0,
            }

        steps = tokenizer.tokenize_rows(rows, tokenize_step)
        if steps.num_off_policy and not (steps.rows or steps.num_without_advantage or steps.num_too_long):
            raise DataError(
                f"all {steps.num_off_policy} steps hold no completion_token_ids: reinforcement learning needs the tokens that "
                "the policy drew, and trajectories of an endpoint or from elsewhere come without them. Collect with "
                "engine.backend vllm: python jobs/collect.py"
            )
        if LOSSES[self.loss].is_standardised and steps.rows:
            standardise(steps.rows)
        return steps

    def build_trainer(self, options: TrainerOptions, images: "TrainingImages | None") -> "Trainer":
        """`PolicyGradientTrainer`: TRL's own GRPO samples its replies itself, which here the collect stage has done."""
        from drag_ray.finetune.trainers.policy_gradient import PolicyGradientTrainer

        return PolicyGradientTrainer(
            **options,
            data_collator=StepCollator(options["processing_class"].pad_token_id, images),
            loss=self.loss,
            loss_options=self.loss_options,
            kl_weight=self.kl_weight,
            aggregation=self.aggregation,
            temperature=choose_temperature(options["train_dataset"]["temperature"]),
            knows_engine=any(options["train_dataset"]["engine_log_probabilities"]),
        )


def standardise(rows: Sequence[dict[str, Any]]) -> None:
    """Give the advantages of rows a deviation of 1. Their signs stay: they are above or below those of their peers already."""
    deviation = pstdev(row["advantage"] for row in rows)
    for row in rows:
        row["advantage"] /= deviation if deviation >= LEAST_ADVANTAGE else 1.0  # what differs by rounding does not differ


def choose_temperature(temperatures: Iterable[float]) -> float:
    """The temperature at which policies are compared: that of the draws, and 1 where they have several, since a batch has one."""
    different = set(temperatures)
    return different.pop() if len(different) == 1 else 1.0


class StepCollator:
    """Pads rows {input_ids, labels, image_keys, advantage, engine_log_probabilities} into a batch."""

    def __init__(self, pad_token_id: int, images: "TrainingImages | None" = None) -> None:
        from drag_ray.finetune.trainers.collator import RowCollator

        self._collate = RowCollator(pad_token_id, images, number="advantage")

    def __call__(self, rows: Sequence[dict[str, Any]]) -> "dict[str, torch.Tensor]":
        """The batch of `RowCollator` with `advantage`, and `engine_log_probabilities` of shape (rows, tokens), NaN where the
        engine's are not known."""
        import torch

        batch = self._collate(rows)
        found = torch.full(batch["labels"].shape, math.nan)
        for place, row in enumerate(rows):
            if row["engine_log_probabilities"]:
                found[place, batch["labels"][place] != IGNORED_LABEL] = torch.tensor(row["engine_log_probabilities"])
        return batch | {"engine_log_probabilities": found}
