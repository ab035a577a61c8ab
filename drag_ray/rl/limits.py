"""The limits of a run of reinforcement learning: signs that a policy collapses, at which it stops rather than go on."""

import math
from collections.abc import Mapping
from operator import itemgetter
from statistics import median_low
from typing import Any

from drag_ray.rl.config import RlConfig

Figures = Mapping[int, Mapping[str, Any]]
_NUM_STEPS = 3
_SHARES = (
    (
        "without_search",
        "rollouts neither search nor call a tool",
        "idle",
        "searches cost more than they bring (process.search_cost, process.invalid_cost), or replies have lost their form",
    ),
    (
        "repetitive",
        "replies go round in circles",
        "furthest",
        "long replies earn more than short ones: lower agent.max_tokens, or raise finetune.grpo.kl_weight",
    ),
    (
        "copied",
        "searches hold the whole question",
        "furthest",
        "the question finds more than what the policy writes: process.reward gain pays only for more than that",
    ),
    (
        "cut",
        "replies are cut at agent.max_tokens",
        "longest",
        "long replies earn more than short ones: raise process.invalid_cost, finetune.grpo.kl_weight or agent.max_tokens",
    ),
    (
        "clipped",
        "learned tokens are beyond the clipped ratio",
        "furthest",
        "steps are too long, or replies too old: lower finetune.learning_rate, rl.updates or rl.max_lag",
    ),
)
"""Figures that are shares, each with a limit of its name, what is done, the rollout to look at and the likely cause."""


def find_breach(step: int, trained: Figures, validated: Figures, config: RlConfig) -> str:
    """A sentence about the first limit that a step is beyond, with a rollout to look at and the likely cause; empty without.

    Args:
        trained: figures of the steps that are trained.
        validated: those of validations, by the step after which they were, the start's being 0.
    """
    figures = trained[step]
    entropy = figures.get("entropy")
    # A few rare tokens make a single step's estimate several times too high.
    recent = [of for number, of in trained.items() if step - _NUM_STEPS < number <= step and "kl" in of]
    kl = median_low(of["kl"] for of in recent) if recent else None
    if kl is not None and kl > config.max_kl:
        return _say(
            step,
            f"the policy is {kl:.3g} nats a token away from its start (the median of {len(recent)} steps), beyond rl.max_kl "
            f"{config.max_kl:g}",
            max(recent, key=itemgetter("kl")).get("furthest"),
            "finetune.learning_rate is too high, or finetune.grpo.kl_weight too low",
        )
    if entropy is not None and entropy < config.min_entropy:
        return _say(
            step,
            f"replies surprise the policy by {entropy:.3g} nats a token, below rl.min_entropy {config.min_entropy:g}",
            figures.get("furthest"),
            "it repeats one reply that earned something: raise finetune.grpo.clip_high or kl_weight, or lower the learning rate",
        )
    for name, does, seen, cause in _SHARES:
        share, most = figures.get(name) or 0.0, getattr(config, f"max_{name}")
        if share > most:
            return _say(step, f"{share:.0%} of the {does}, beyond rl.max_{name} {most:g}", figures.get(seen), cause)
    return _find_odd_engine(step, figures, config) or _find_decline(step, validated, config)


def _find_decline(step: int, validated: Figures, config: RlConfig) -> str:
    """The reward in validation, beside that of the start, in its standard deviations: rewards have any scale."""
    start, now = validated.get(0, {}), validated.get(step, {})
    lost, allowed = start.get("reward", 0.0) - now.get("reward", math.inf), config.max_decline * start.get("deviation", 0.0)
    if not lost > allowed > 0:
        return ""
    return _say(
        step,
        f"the reward in validation is {now['reward']:.3g}, {lost:.3g} below that of the start, beyond {allowed:.3g} "
        f"(rl.max_decline {config.max_decline:g} of the standard deviation of a question's reward)",
        now.get("worst"),
        "it learns what only its training questions reward: lower finetune.learning_rate, or take more questions",
    )


def _find_odd_engine(step: int, figures: Mapping[str, Any], config: RlConfig) -> str:
    worst, most = figures.get("worst_engine_kl"), config.max_engine_kl * (1 + figures.get("lag", 0))
    if worst is None or abs(worst) <= most:
        return ""
    return _say(
        step,
        f"the engine of the files *{figures['worst_engine']}* is {abs(worst):.3g} nats a token from the policy that it was to "
        f"draw from, beyond {most:g} (rl.max_engine_kl)",
        figures.get("furthest"),
        "its adapter has not reached it, or it reckons in another way (engine.dtype, engine.load_format)",
    )


def _say(step: int, what: str, rollout: Any, cause: str) -> str:
    seen = f" Look at the rollout {rollout}, for one." if rollout else ""
    return (
        f"rl step {step}: {what}.{seen} Likely {cause}. Started again with another limit the stage goes on after this step; with "
        "other options of training it begins anew."
    )
