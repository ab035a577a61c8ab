"""Reinforcement learning from recorded trajectories: GRPO (https://arxiv.org/abs/2402.03300) on the replies of a collection.

Sampling is what the collect stage is for, so a pass over the loop (collect, process, format, finetune) is one round, and
`merged/` is the policy of the next.  Within a round the clipped ratio keeps it near the one that wrote the replies, from which
the adapter starts.  Tokens count alike, whatever the length of their reply (DAPO, https://arxiv.org/abs/2503.14476).
"""

from typing import Any

import torch
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import use_adapter

from drag_ray.finetune.trained_tokens import TrainedTokensTrainer, compute_log_probabilities


class PolicyGradientTrainer(TrainedTokensTrainer):
    """`TrainedTokensTrainer` on rows with an `advantage`, which all of their tokens have.

    It logs `kl`, how far the policy has come from the one that it started from, in nats a token, and `clipped`, the share of
    tokens that are too far from it already to be pushed further.

    Args:
        clip_range: by which share a token may become likelier or less likely before it is left alone.
        kl_weight: what a nat costs, in advantage.
    """

    def __init__(self, *args: Any, clip_range: float, kl_weight: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._clip_range = clip_range
        self._kl_weight = kl_weight
        self._fused = not self.args.use_cpu

    def compute_batch_loss(self, model: Any, inputs: dict[str, Any], num_tokens: torch.Tensor | int | None) -> torch.Tensor:
        """The mean loss of the drawn tokens."""
        advantage = inputs["advantage"].unsqueeze(1)
        before = self._compute_before(model, inputs)
        now, is_drawn = compute_log_probabilities(model, inputs, fused=self._fused)
        kl = compute_kl(now, before)
        loss = (self._kl_weight * kl - compute_gains(now, before, advantage, self._clip_range))[is_drawn].sum()
        mode = "train" if model.training else "eval"
        self._note(mode, "kl", kl[is_drawn])
        self._note(mode, "clipped", is_clipped(now, before, advantage, self._clip_range)[is_drawn].float())
        return loss / (is_drawn.sum() if num_tokens is None else num_tokens)

    def _compute_before(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """Log-probabilities of the policy that the adapter starts from."""
        adapted: Any = self.accelerator.unwrap_model(model)
        checkpointing: Any = self.args.gradient_checkpointing_kwargs
        with (
            torch.no_grad(),
            disable_gradient_checkpointing(adapted, checkpointing),
            use_adapter(adapted, adapter_name=None),
        ):
            return compute_log_probabilities(model, inputs, fused=self._fused)[0]

    def _note(self, mode: str, name: str, values: torch.Tensor) -> None:
        """Hand the mean over all processes to the log."""
        means = torch.as_tensor(self.accelerator.gather(values.detach().mean()))
        self._metrics[mode][name].append(means.mean().item())


def compute_gains(now: torch.Tensor, before: torch.Tensor, advantage: torch.Tensor, clip_range: float) -> torch.Tensor:
    """What each token adds to the expected advantage: the ratio of its probabilities times the advantage, clipped as in PPO.

    Args:
        now: log-probabilities, of shape (rows, tokens).
        before: those of the policy that drew the tokens.
        advantage: of shape (rows, 1).
        clip_range: the ratio counts within 1 - clip_range and 1 + clip_range.
    """
    ratio = (now - before).exp()
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip_range, 1 + clip_range) * advantage)


def is_clipped(now: torch.Tensor, before: torch.Tensor, advantage: torch.Tensor, clip_range: float) -> torch.Tensor:
    """Which tokens have no gradient, since the policy has gone as far with them as it may. Args are those of `compute_gains`."""
    ratio = (now - before).exp()
    return torch.where(advantage > 0, ratio > 1 + clip_range, ratio < 1 - clip_range)


def compute_kl(now: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """For each token an estimate of the divergence from `before`, which is never negative (http://joschu.net/blog/kl-approx.html)."""
    return (before - now).exp() - (before - now) - 1
