"""Reinforcement learning from recorded trajectories: the losses of `finetune.losses` on the replies of a collection.

Sampling is what the collect stage is for, so a pass over the loop (collect, process, format, finetune) is one round.  Within a
round the clipped ratio keeps the policy near the one that wrote the replies, which training starts from: `old` and `start` are
the same.  Probabilities are those at the temperature T of the draws, softmax(logits / T): it is that policy that replied (top-p
and repetition penalties, which bend it further, are left out).  The engine's are compared at temperature 1, at which it records
them.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import add_fused_lm_head

from drag_ray.engine.models.tokens import IGNORED_LABEL
from drag_ray.finetune.losses import LOSSES, Aggregation, DrawnTokens, LossName, LossOptions, compute_engine_gap, compute_kl
from drag_ray.finetune.start import use_start
from drag_ray.finetune.trainers.trained_tokens import TrainedTokensTrainer, compute_log_probabilities, find_rows


class DrawnScores:
    """Log-probabilities of drawn tokens, row by row, to a model with an adapter, at one temperature or at 1.

    Args:
        adapted: the model, which nothing is wrapped around.
        temperature: of the draws.
        fused: use TRL's head, which never holds the logits of all tokens at once. It has a temperature of its own.
    """

    def __init__(self, adapted: Any, temperature: float, *, fused: bool) -> None:
        self.temperature = temperature
        self._base = adapted.get_base_model()
        self._heads = self._build_heads() if fused else {}

    def compute(self, model: Any, inputs: dict[str, Any], temperature: float) -> torch.Tensor:
        """Of shape (tokens,)."""
        if self._heads:
            self._base.forward = self._heads[temperature]
        scored = compute_log_probabilities(model, inputs, fused=bool(self._heads), temperature=temperature)
        log_probabilities, is_drawn = scored
        return log_probabilities[is_drawn]

    def compute_old(self, model: Any, inputs: dict[str, Any], *, knows_engine: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities before training, and how far they are above the engine's at temperature 1. Without gradients."""
        with torch.no_grad():
            old = self.compute(model, inputs, self.temperature)
            if not knows_engine:
                return old, torch.zeros_like(old)
            as_recorded = old if self.temperature == 1 else self.compute(model, inputs, 1.0)
        return old, compare_engine(inputs, as_recorded)

    def _build_heads(self) -> dict[float, Any]:
        """The model's forward with TRL's fused head for each temperature that is needed."""
        heads = {}
        for temperature in {1.0, self.temperature}:
            add_fused_lm_head(self._base, temperature=temperature)
            heads[temperature] = self._base.forward
        return heads


def compare_engine(inputs: dict[str, Any], as_recorded: torch.Tensor) -> torch.Tensor:
    """The distance of log-probabilities at temperature 1 above those that the engine recorded, of shape (tokens,)."""
    drawn = inputs["labels"][:, 1:] != IGNORED_LABEL
    return compute_engine_gap(as_recorded, inputs["engine_log_probabilities"][:, 1:][drawn])


def gather_drawn(
    inputs: dict[str, Any], now: torch.Tensor, old: torch.Tensor, start: torch.Tensor, engine_gap: torch.Tensor
) -> DrawnTokens:
    """The drawn tokens of a batch of `StepCollator` or `collate_pack`, with their log-probabilities."""
    rows = find_rows(inputs)
    return DrawnTokens(now, old, start, engine_gap, inputs["advantage"][rows], rows, len(inputs["advantage"]))


class PolicyGradientTrainer(TrainedTokensTrainer):
    """`TrainedTokensTrainer` on rows with an `advantage`, which all of their tokens have.

    It logs `kl`, how far the policy has come from the one that it started from, in nats a token, and `clipped`, the share of
    tokens that are too far from it already to be pushed further, both over all tokens of a step or of an evaluation.

    Args:
        loss: of `LOSSES`.
        loss_options: its numbers.
        kl_weight: what a nat costs, in advantage.
        aggregation: whether tokens or replies count alike.
        temperature: at which the replies were drawn.
        knows_engine: whether any row has log-probabilities of the engine. All processes have to do the same.
    """

    def __init__(
        self,
        *args: Any,
        loss: LossName,
        loss_options: LossOptions,
        kl_weight: float,
        aggregation: Aggregation,
        temperature: float,
        knows_engine: bool,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._loss = LOSSES[loss]
        self._loss_options = loss_options
        self._kl_weight = kl_weight
        self._aggregation: Aggregation = aggregation
        self._knows_engine = knows_engine
        self._totals: defaultdict[str, list[torch.Tensor]] = defaultdict(list)
        self._scores = DrawnScores(self.model, temperature, fused=not self.args.use_cpu)

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> tuple[list[Any], Any]:
        """The batches of a step, and the number of its tokens, or of its rows where these count alike."""
        batches, num_tokens = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not self._loss.counts_replies(self._aggregation):
            return batches, num_tokens
        num_rows = torch.tensor(sum(len(batch["advantage"]) for batch in batches), device=device)
        return batches, torch.as_tensor(self.accelerator.gather(num_rows)).sum()

    def compute_batch_loss(self, model: Any, inputs: dict[str, Any], num_tokens: torch.Tensor | int | None) -> torch.Tensor:
        """The mean loss of the drawn tokens, or of the replies."""
        adapted: Any = self.accelerator.unwrap_model(model)
        checkpointing: Any = self.args.gradient_checkpointing_kwargs
        with disable_gradient_checkpointing(adapted, checkpointing), use_start(adapted):
            start, engine_gap = self._scores.compute_old(model, inputs, knows_engine=self._knows_engine)
        now = self._scores.compute(model, inputs, self._scores.temperature)
        drawn = gather_drawn(inputs, now, start, start, engine_gap)
        options = self._loss_options
        kl = compute_kl(now.detach(), start)
        clipped = self._loss.find_clipped(drawn, options)
        totals = torch.stack([kl.sum(), clipped.sum(), torch.ones_like(kl).sum()])
        self._totals["train" if model.training else "eval"].append(totals)
        if num_tokens is None:
            num_tokens = drawn.num_rows if self._loss.counts_replies(self._aggregation) else len(now)
        return self._loss.total(drawn, options, self._kl_weight, self._aggregation) / num_tokens

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log with what all processes have noted since the last time."""
        trained: Any = self.model
        mode = "train" if trained.training else "eval"
        if noted := self._totals.pop(mode, None):
            totals = torch.as_tensor(self.accelerator.gather(torch.stack(noted).sum(dim=0)))
            kl, clipped, num_tokens = totals.view(-1, 3).sum(dim=0).tolist()
            self._metrics[mode] |= {"kl": [kl / num_tokens], "clipped": [clipped / num_tokens]}
        super().log(logs, start_time)
