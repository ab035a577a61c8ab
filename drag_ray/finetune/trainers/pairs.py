"""Trainers of preference pairs: what a pair's replies are worth, and a loss that is the lower, the more the chosen one is.

Bradley and Terry's, as DPO (https://arxiv.org/abs/2305.18290, equation 7) and reward models (https://arxiv.org/abs/2203.02155,
equation 1) have it. The prompt of a pair is computed once where `PairCollator` shares it.
"""

from typing import Any

import torch
from torch.nn.functional import logsigmoid
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.reward_trainer import RewardTrainer

from drag_ray.finetune.start import use_start
from drag_ray.finetune.trainers.adapter_trainer import RowMeanTrainer
from drag_ray.finetune.trainers.shared_prefixes import unfold_mask
from drag_ray.finetune.trainers.trained_tokens import (
    TrainedTokensTrainer,
    compute_log_probabilities,
    find_base,
    find_rows,
    list_features,
)


class PairTrainer(RowMeanTrainer):
    """Stands before a trainer of TRL, on batches of `PairCollator`.

    It logs `rewards/chosen`, `rewards/rejected`, `rewards/margins` and `rewards/accuracies`, the share of pairs whose chosen
    reply is worth more.
    """

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """The mean loss of a batch. There are no outputs beside it, as only losses are evaluated."""
        if _shares(inputs):
            inputs = inputs | {"attention_mask": unfold_mask(inputs)}
        chosen, rejected = self.score_rows(model, inputs).float().chunk(2)
        margins = chosen - rejected
        noted = torch.stack([chosen.detach(), rejected.detach(), margins.detach(), (margins > 0).float()], dim=1)
        means = torch.as_tensor(self.accelerator.gather_for_metrics(noted)).mean(dim=0).tolist()
        metrics: Any = self._metrics["train" if model.training else "eval"]  # pyright: ignore[reportAttributeAccessIssue], of TRL
        for name, mean in zip(("chosen", "rejected", "margins", "accuracies"), means, strict=True):
            metrics[f"rewards/{name}"].append(mean)
        loss = -logsigmoid(margins).mean()
        return (loss, {}) if return_outputs else loss

    def score_rows(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """The worth of each row, of shape (2 x pairs,): all chosen ones, then all rejected ones."""
        raise NotImplementedError


class PreferenceTrainer(PairTrainer, TrainedTokensTrainer):
    """DPO: a reply is worth how much likelier it has become since the start of the training.

    `beta`: what a nat is worth.
    """

    def __init__(self, *args: Any, beta: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self.model_accepts_loss_kwargs = False  # the loss is divided as `RowMeans` says
        self._beta = beta

    def score_rows(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """As the class says."""
        adapted: Any = self.accelerator.unwrap_model(model)
        checkpointing: Any = self.args.gradient_checkpointing_kwargs
        with torch.no_grad(), disable_gradient_checkpointing(adapted, checkpointing), use_start(adapted):
            start = self._add_up(model, inputs)
        return self._beta * (self._add_up(model, inputs) - start)

    def _add_up(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """The log-probability of each row's reply."""
        log_probabilities, is_trained = compute_log_probabilities(model, inputs, fused=not self.args.use_cpu)
        drawn = log_probabilities[is_trained].float()
        return drawn.new_zeros(_count_rows(inputs)).index_add(0, find_rows(inputs), drawn)


class RewardModelTrainer(PairTrainer, RewardTrainer):
    """A reward model: a reply is worth what the model's head says at its end."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._scores: torch.Tensor | None = None
        if head := getattr(find_base(self.model), "score", None):
            head.register_forward_hook(self._take_scores)

    def score_rows(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """As the class says. The model's own output is that of the end of a sequence, where a shared one has two ends."""
        rewards = model(**list_features(inputs), use_cache=False).logits
        scores, self._scores = self._scores, None
        if not _shares(inputs) or scores is None:
            return rewards.squeeze(1)
        rows = inputs["rows"]
        numbers = torch.arange(_count_rows(inputs), device=rows.device).view(2, -1, 1)
        ends = ((rows == numbers) * torch.arange(rows.shape[1], device=rows.device)).amax(dim=2)
        return scores.squeeze(2).gather(1, ends.T).T.flatten()

    def _take_scores(self, head: Any, given: Any, scores: torch.Tensor) -> None:
        self._scores = scores


def _shares(inputs: dict[str, Any]) -> bool:
    """True for a batch of `share_prompts`."""
    return "position_ids" in inputs


def _count_rows(inputs: dict[str, Any]) -> int:
    return len(inputs["labels"]) * (2 if _shares(inputs) else 1)
