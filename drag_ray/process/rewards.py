"""What replies and trajectories are worth to reinforcement learning, as Polars expressions.

The rank reward and the way in which a trajectory's parts are put together are those of V-Retrver (2026): a Gaussian of the rank,
a weighted sum with the format, a cost for each further search, within [-0.5, 1.5].  Its curiosity term is
left out: it pays for calling a tool at all, and here every question needs a search.
"""

import polars as pl

from drag_ray.agent.answers import compute_anls
from drag_ray.process.config import ProcessConfig
from drag_ray.types import ActionKind

_LOWEST, _HIGHEST = -0.5, 1.5


def rank_reward(rank: pl.Expr, top_k: pl.Expr, sigma: float) -> pl.Expr:
    """exp(-(rank - 1)^2 / (2 sigma^2)) for a 1-based rank within top_k, 0 for one outside of it and for null."""
    return pl.when(rank <= top_k).then((-((rank - 1) ** 2) / (2 * sigma**2)).exp()).otherwise(0.0)


def format_reward(action: pl.Expr, finish_reason: pl.Expr) -> pl.Expr:
    """1 for a reply with an action that could be read and that was not cut at its token limit, otherwise 0."""
    return ((action != ActionKind.INVALID.value) & (finish_reason != "length")).cast(pl.Float64)


def turn_reward(config: ProcessConfig) -> pl.Expr:
    """What one reply is worth: its format, and the rank of its search or the ANLS* of its answer.

    Reads the columns action, format_reward, rank_reward and answer_reward (of the trajectory).
    """
    action = pl.col("action")
    return (
        config.format_weight * pl.col("format_reward")
        + pl.when(action == ActionKind.SEARCH.value).then(config.rank_weight * pl.col("rank_reward")).otherwise(0.0)
        + pl.when(action == ActionKind.ANSWER.value).then(config.answer_weight * pl.col("answer_reward")).otherwise(0.0)
    )


def trajectory_reward(config: ProcessConfig) -> pl.Expr:
    """What a trajectory is worth; its searches cost from the second on.

    Reads the columns mean_format_reward, best_rank_reward, answer_reward and num_searches.
    """
    num_further = (pl.col("num_searches").cast(pl.Int64) - 1).clip(0)
    return (
        config.format_weight * pl.col("mean_format_reward")
        + config.rank_weight * pl.col("best_rank_reward")
        + config.answer_weight * pl.col("answer_reward")
        - config.search_cost * num_further
    ).clip(_LOWEST, _HIGHEST)


def compute_answer_rewards(final_answers: pl.Series, gold_answers: pl.Series) -> pl.Series:
    """ANLS* of each final answer against the best of its gold answers, 0 where nothing was answered."""
    known: dict[tuple[str, tuple[str, ...]], float] = {}
    rewards = []
    for answer, gold in zip(final_answers, gold_answers.to_list(), strict=True):
        key = (answer, tuple(gold))
        if answer and key not in known:
            known[key] = compute_anls(answer, gold)
        rewards.append(known[key] if answer else 0.0)
    return pl.Series("answer_reward", rewards, dtype=pl.Float64)
