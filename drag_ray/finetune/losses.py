"""The losses of reinforcement learning, as pure functions of the log-probabilities of drawn tokens.

Where A is the advantage of a token's reply, r = now / old its probability over that before it was learned from, and
c = min(old / engine, max_engine_ratio), a reply or each of its tokens loses

- `grpo` and `reinforce_pp`: -c * min(r * A, clip(r) * A), token by token (PPO, https://arxiv.org/abs/1707.06347). GRPO
  (https://arxiv.org/abs/2402.03300) compares a reply with the mean of its peers; REINFORCE++
  (https://arxiv.org/abs/2501.03262) has that in units of its deviation over the whole batch, and is not centred again, so that
  what is better than its peers stays so.
- `rloo`: the same of the reply as a whole, whose r and c are those of all of its tokens together, compared with the mean of the
  others alone (https://arxiv.org/abs/2402.14740).
- `oapl`: (beta * log(now / engine) - A)^2 of the reply as a whole, compared with what the best policy that is held near the
  engine's would earn (https://arxiv.org/abs/2602.19362, after A*-PO, https://arxiv.org/abs/2505.20686). It needs no ratio to be
  near 1, so that replies may be of old policies.

clip(r) lies within 1 - clip_range and 1 + clip_high: with a clip_high above clip_range what was unlikely can become likelier
(DAPO, https://arxiv.org/abs/2503.14476). c makes up for the engine, whose kernels and number formats give other probabilities
than training has with the same weights, and for policies that are some steps old: the truncated importance sampling of
https://fengyao.notion.site/off-policy-rl, as TRL's GRPO has it with `vllm_importance_sampling_mode` token_truncate.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import torch

Aggregation = Literal["token", "reply"]


@dataclass(frozen=True)
class LossOptions:
    """The numbers of the losses: see `finetune.methods.grpo`."""

    clip_range: float
    clip_high: float
    max_engine_ratio: float
    beta: float


@dataclass(frozen=True)
class DrawnTokens:
    """The drawn tokens of a batch, row by row: all of shape (tokens,), log-probabilities at the temperature of the draws.

    Attributes:
        now: to the model that is trained.
        old: to the model before it learned from these rows.
        start: to the model that training started from.
        engine_gap: how much higher at temperature 1 it is to the model of `old` than to the engine; 0 where that is not known.
        advantage: of the reply of each.
        rows: the 0-based row of each.
        num_rows: rows of the batch.
    """

    now: "torch.Tensor"
    old: "torch.Tensor"
    start: "torch.Tensor"
    engine_gap: "torch.Tensor"
    advantage: "torch.Tensor"
    rows: "torch.Tensor"
    num_rows: int

    def sum_rows(self, values: "torch.Tensor") -> "torch.Tensor":
        """The sums of a value of each token over the rows, of shape (rows,)."""
        return values.new_zeros(self.num_rows).index_add(0, self.rows, values)

    def mean_rows(self, values: "torch.Tensor") -> "torch.Tensor":
        """The means of a value of each token over the rows, of shape (rows,); 0 for a row without tokens."""
        return self.sum_rows(values) / self.sum_rows(values.detach() * 0 + 1).clamp(min=1)


def compute_gains(
    now: "torch.Tensor", old: "torch.Tensor", advantage: "torch.Tensor", clip_range: float, clip_high: float
) -> "torch.Tensor":
    """The clipped objective of tokens or replies: the ratio of their probabilities times the advantage, clipped as in PPO.

    Args:
        now: log-probabilities.
        old: those of the policy that is compared with.
        advantage: of each.
        clip_range: the ratio counts from 1 - clip_range on.
        clip_high: the ratio counts up to 1 + clip_high.
    """
    ratio = (now - old).exp()
    return (ratio * advantage).minimum(ratio.clamp(1 - clip_range, 1 + clip_high) * advantage)


def is_clipped(
    now: "torch.Tensor", old: "torch.Tensor", advantage: "torch.Tensor", clip_range: float, clip_high: float
) -> "torch.Tensor":
    """True for tokens without gradient, since the policy went as far with them as it may. Args are those of `compute_gains`."""
    ratio = (now - old).exp()
    return ((advantage > 0) & (ratio > 1 + clip_high)) | ((advantage <= 0) & (ratio < 1 - clip_range))


def compute_engine_gap(old: "torch.Tensor", engine: "torch.Tensor") -> "torch.Tensor":
    """By how much the log-probabilities of drawn tokens at temperature 1 are above those that the engine recorded.

    Args:
        old: of the model that is trained, before training.
        engine: NaN where it recorded none, and the gap is 0.
    """
    return (old - engine).nan_to_num(nan=0.0)


def compute_kl(now: "torch.Tensor", start: "torch.Tensor") -> "torch.Tensor":
    """For each token an estimate of the divergence from `start`, which is never negative (http://joschu.net/blog/kl-approx.html)."""
    return (start - now).exp() - (start - now) - 1


def _lose_clipped_tokens(drawn: DrawnTokens, options: LossOptions) -> "torch.Tensor":
    engine_ratio = drawn.engine_gap.exp().clamp(max=options.max_engine_ratio)
    gains = compute_gains(drawn.now, drawn.old, drawn.advantage, options.clip_range, options.clip_high)
    return -engine_ratio * gains


def _lose_clipped_replies(drawn: DrawnTokens, options: LossOptions) -> "torch.Tensor":
    now, old, gap = (drawn.sum_rows(values) for values in (drawn.now, drawn.old, drawn.engine_gap))
    advantage = drawn.mean_rows(drawn.advantage)
    return -gap.exp().clamp(max=options.max_engine_ratio) * compute_gains(
        now, old, advantage, options.clip_range, options.clip_high
    )


def _lose_regressed(drawn: DrawnTokens, options: LossOptions) -> "torch.Tensor":
    log_ratio = drawn.sum_rows(drawn.now - drawn.old + drawn.engine_gap)
    return (options.beta * log_ratio - drawn.mean_rows(drawn.advantage)) ** 2


Baseline = Literal["mean", "others", "optimal"]
"""What a return is compared with: see `format.baseline`."""


class Loss(NamedTuple):
    """A loss of drawn tokens.

    Attributes:
        compute: of each token, or of each row where it is `of_replies`.
        baseline: of the advantages that it is made for.
        clips: whether a ratio counts within bounds alone.
        is_standardised: whether these are in units of their deviation over all replies that are learned from at once.
    """

    compute: Callable[[DrawnTokens, LossOptions], "torch.Tensor"]
    baseline: Baseline
    of_replies: bool = False
    clips: bool = True
    is_standardised: bool = False

    def total(self, drawn: DrawnTokens, options: LossOptions, kl_weight: float, aggregation: Aggregation) -> "torch.Tensor":
        """The sum over a batch, with the cost of the divergence from the start: over tokens, over replies as a whole, or over the
        means of replies.

        It is to be divided by the number of tokens, or of replies (see `counts_replies`), of a whole step.
        """
        losses, costs = self.compute(drawn, options), kl_weight * compute_kl(drawn.now, drawn.start)
        if self.of_replies:  # a reply is as likely as all of its tokens together, and as far from the start
            return losses.sum() + costs.sum()
        return (drawn.mean_rows(losses + costs) if aggregation == "reply" else losses + costs).sum()

    def find_clipped(self, drawn: DrawnTokens, options: LossOptions) -> "torch.Tensor":
        """True for tokens without gradient, of shape (tokens,), as the policy went as far as it may with them or their reply."""
        if not self.clips:
            return drawn.rows < 0
        bounds = (options.clip_range, options.clip_high)
        if not self.of_replies:
            return is_clipped(drawn.now, drawn.old, drawn.advantage, *bounds)
        now, old = drawn.sum_rows(drawn.now), drawn.sum_rows(drawn.old)
        return is_clipped(now, old, drawn.mean_rows(drawn.advantage), *bounds)[drawn.rows]

    def counts_replies(self, aggregation: Aggregation) -> bool:
        """True if each reply counts alike, whatever its length."""
        return self.of_replies or aggregation == "reply"


LOSSES = {
    "grpo": Loss(_lose_clipped_tokens, "mean"),
    "rloo": Loss(_lose_clipped_replies, "others", of_replies=True),
    "reinforce_pp": Loss(_lose_clipped_tokens, "mean", is_standardised=True),
    "oapl": Loss(_lose_regressed, "optimal", of_replies=True, clips=False),
}
"""By the names of `finetune.grpo.loss`."""

if TYPE_CHECKING:
    LossName = str
else:
    LossName = Literal[tuple(LOSSES)]
