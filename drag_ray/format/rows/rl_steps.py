"""Step-level data for reinforcement learning: what the policy was shown, what it wrote, and what that earned.

{"prompt": [{"role": "system", ...}, {"role": "user", "content": "Question: ..."}],
 "completion": [{"role": "assistant", "content": "<search>rotor</search>"}],
 "question_id": "q1", "trajectory_id": "q1-0", "step": 1, "num_steps": 2, "reward": 0.3, "trajectory_reward": 0.95,
 "advantage": 1.2, "completion_token_ids": [44, 10552, 46, ...]}

Every reply counts, dropped and unreadable ones too, word for word and in the tokens that were drawn: a policy learns from what it
did.  The rewards are those of the process stage.  A trainer that samples its own replies, as TRL's GRPO does, reads the prompts
alone.
"""

import polars as pl

from drag_ray.engine.generate import Message
from drag_ray.format.columns import Row
from drag_ray.format.config import FormatConfig
from drag_ray.format.examples import RewardedExample
from drag_ray.format.messages import as_reply, cut_conversation
from drag_ray.format.row_format import RowFormat
from drag_ray.format.tables import ScoredPart

_LEAST_DEVIATION = 1e-6
"""Equal rewards may differ by rounding."""


class StepRow(Row):
    """One reply of a trajectory."""

    prompt: list[Message]
    completion: list[Message]
    question_id: str
    trajectory_id: str
    step: int
    """1-based"""
    num_steps: int
    reward: float
    """of the reply alone"""
    trajectory_reward: float
    advantage: float
    """what the trajectory's reward is above the question's other ones"""
    completion_token_ids: list[int]


def build_rows(part: ScoredPart, config: FormatConfig) -> pl.DataFrame:
    """One row for each turn whose search, if it was one, did run."""
    whole = part.trajectories.select(
        "trajectory_id", "num_turns", trajectory_reward="reward", advantage=group_advantage("reward", "question_id")
    )
    steps = part.turns.filter(~pl.col("has_error")).join(whole, on="trajectory_id", maintain_order="left")
    return part.add_conversations(steps).select(
        cut_conversation("num_prompt_messages").alias("prompt"),
        as_reply("reply").alias("completion"),
        *("question_id", "trajectory_id", "step"),
        pl.col("num_turns").cast(pl.Int32).alias("num_steps"),
        *("reward", "trajectory_reward", "advantage", "completion_token_ids"),
    )


def group_advantage(reward: str, group: str) -> pl.Expr:
    """How many standard deviations a reward is above the mean of its group; 0 in a group of one, or of equal rewards.

    Source: GRPO (https://arxiv.org/abs/2402.03300), where a group is the samples of a question.
    """
    deviation = pl.col(reward).std().over(group).fill_null(0.0)
    above = pl.col(reward) - pl.col(reward).mean().over(group)
    return pl.when(deviation > _LEAST_DEVIATION).then(above / deviation).otherwise(0.0)


def to_example(row: StepRow) -> RewardedExample:
    """The reply with its own reward."""
    return RewardedExample(row["prompt"], row["completion"][0], row["reward"])


FORMAT = RowFormat(
    row=StepRow,
    summary="every reply with its reward and advantage (RL: prompt, completion, completion_token_ids, advantage)",
    build_rows=build_rows,
    to_example=to_example,
)
