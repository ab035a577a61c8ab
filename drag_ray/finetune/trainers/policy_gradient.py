"""Reinforcement learning from recorded trajectories: GRPO (https://arxiv.org/abs/2402.03300) on the replies of a collection.

Sampling is what the collect stage is for, so a pass over the loop (collect, process, format, finetune) is one round.  Within a
round the clipped ratio keeps the policy near the one that wrote the replies, which training starts from.  Tokens count alike,
whatever the length of their reply (DAPO, https://arxiv.org/abs/2503.14476).  Where A is the advantage of its reply, a token gains

    c * min(r * A, clip(r) * A),    r = now / start,    c = min(start / engine, max_engine_ratio)

`now` and `start` are its probabilities at the temperature T of the draws, softmax(logits / T): it is that policy that replied
(top-p and repetition penalties, which bend it further, are left out).  c makes up for the engine, whose kernels and number
formats give other probabilities than training has with the same weights.  It compares those at temperature 1, which the engine
records, and is 1 where it did not.  This is the truncated importance sampling of https://fengyao.notion.site/off-policy-rl, as
TRL's GRPO has it with `vllm_importance_sampling_mode` token_truncate.
"""

from collections import defaultdict
from typing import Any

import torch
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import add_fused_lm_head

from drag_ray.engine.models.tokens import IGNORED_LABEL
from drag_ray.finetune.start import use_start
from drag_ray.finetune.trainers.trained_tokens import TrainedTokensTrainer, compute_log_probabilities


class PolicyGradientTrainer(TrainedTokensTrainer):
    """`TrainedTokensTrainer` on rows with an `advantage`, which all of their tokens have.

    It logs `kl`, how far the policy has come from the one that it started from, in nats a token, and `clipped`, the share of
    tokens that are too far from it already to be pushed further, both over all tokens of a step or of an evaluation.

    Args:
        clip_range: by which share a token may become likelier or less likely before it is left alone.
        kl_weight: what a nat costs, in advantage.
        max_engine_ratio: the most that a token counts for being likelier to the model at the start than to the engine.
        temperature: at which the replies were drawn.
        knows_engine: whether any row has log-probabilities of the engine. All processes have to do the same.
    """

    def __init__(
        self,
        *args: Any,
        clip_range: float,
        kl_weight: float,
        max_engine_ratio: float,
        temperature: float,
        knows_engine: bool,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._clip_range = clip_range
        self._kl_weight = kl_weight
        self._max_engine_ratio = max_engine_ratio
        self._temperature = temperature
        self._knows_engine = knows_engine
        self._totals: defaultdict[str, list[torch.Tensor]] = defaultdict(list)
        self._fused = not self.args.use_cpu
        self._heads = self._build_heads() if self._fused else {}

    def compute_batch_loss(self, model: Any, inputs: dict[str, Any], num_tokens: torch.Tensor | int | None) -> torch.Tensor:
        """The mean loss of the drawn tokens."""
        is_drawn = inputs["labels"][:, 1:] != IGNORED_LABEL
        advantage = inputs["advantage"].unsqueeze(1).expand_as(is_drawn)[is_drawn]
        start, engine_ratio = self._compute_start(model, inputs, inputs["engine_log_probabilities"][:, 1:][is_drawn])
        now = self._compute(model, inputs, self._temperature)
        kl = compute_kl(now, start)
        loss = (self._kl_weight * kl - engine_ratio * compute_gains(now, start, advantage, self._clip_range)).sum()
        clipped = is_clipped(now, start, advantage, self._clip_range)
        totals = torch.stack([kl.detach().sum(), clipped.sum(), is_drawn.sum()])
        self._totals["train" if model.training else "eval"].append(totals)
        return loss / (is_drawn.sum() if num_tokens is None else num_tokens)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log with what all processes have noted since the last time."""
        trained: Any = self.model
        mode = "train" if trained.training else "eval"
        if noted := self._totals.pop(mode, None):
            totals = torch.as_tensor(self.accelerator.gather(torch.stack(noted).sum(dim=0)))
            kl, clipped, num_tokens = totals.view(-1, 3).sum(dim=0).tolist()
            self._metrics[mode] |= {"kl": [kl / num_tokens], "clipped": [clipped / num_tokens]}
        super().log(logs, start_time)

    def _compute_start(self, model: Any, inputs: dict[str, Any], engine: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the policy that training starts from: the log-probabilities of the drawn tokens, and how much more likely than the
        engine it has them, within bounds.
        """
        adapted: Any = self.accelerator.unwrap_model(model)
        checkpointing: Any = self.args.gradient_checkpointing_kwargs
        with torch.no_grad(), disable_gradient_checkpointing(adapted, checkpointing), use_start(adapted):
            start = self._compute(model, inputs, self._temperature)
            if not self._knows_engine:
                return start, torch.ones_like(start)
            as_recorded = start if self._temperature == 1 else self._compute(model, inputs, 1.0)
        return start, compute_engine_ratio(as_recorded, engine, self._max_engine_ratio)

    def _compute(self, model: Any, inputs: dict[str, Any], temperature: float) -> torch.Tensor:
        """Log-probabilities of the drawn tokens, row by row, of shape (tokens,)."""
        if self._fused:
            adapted: Any = self.accelerator.unwrap_model(model)
            adapted.get_base_model().forward = self._heads[temperature]
        log_probabilities, is_drawn = compute_log_probabilities(model, inputs, fused=self._fused, temperature=temperature)
        return log_probabilities[is_drawn]

    def _build_heads(self) -> dict[float, Any]:
        """The model's forward with TRL's fused head for each temperature that is needed: a head has one."""
        adapted: Any = self.model
        base = adapted.get_base_model()
        heads = {1.0: base.forward}
        if self._temperature not in heads:
            add_fused_lm_head(base, temperature=self._temperature)
            heads[self._temperature] = base.forward
        return heads


def compute_gains(now: torch.Tensor, start: torch.Tensor, advantage: torch.Tensor, clip_range: float) -> torch.Tensor:
    """The clipped objective of each token: the ratio of its probabilities times the advantage, clipped as in PPO.

    Args:
        now: log-probabilities, of shape (tokens,).
        start: those of the policy that drew the tokens.
        advantage: of each token's reply.
        clip_range: the ratio counts within 1 - clip_range and 1 + clip_range.
    """
    ratio = (now - start).exp()
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip_range, 1 + clip_range) * advantage)


def compute_engine_ratio(start: torch.Tensor, engine: torch.Tensor, max_ratio: float) -> torch.Tensor:
    """Each token's probability to the model that is trained, before training, over that to the engine that drew it.

    Args:
        start: log-probabilities of the model at temperature 1, of shape (tokens,).
        engine: those that the engine recorded; NaN where it recorded none, and the ratio is 1.
        max_ratio: the ratio is cut there.
    """
    return (start - engine).nan_to_num(nan=0.0).exp().clamp(max=max_ratio)


def is_clipped(now: torch.Tensor, start: torch.Tensor, advantage: torch.Tensor, clip_range: float) -> torch.Tensor:
    """True for tokens without gradient, since the policy went as far with them as it may. Args are those of `compute_gains`."""
    ratio = (now - start).exp()
    return torch.where(advantage > 0, ratio > 1 + clip_range, ratio < 1 - clip_range)


def compute_kl(now: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """For each token an estimate of the divergence from `start`, which is never negative (http://joschu.net/blog/kl-approx.html)."""
    return (start - now).exp() - (start - now) - 1
