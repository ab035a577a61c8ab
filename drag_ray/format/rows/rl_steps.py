"""Step-level data for reinforcement learning: what the policy was shown, what it wrote, and what that earned.

{"prompt": [{"role": "system", ...}, {"role": "user", "content": "Question: ..."}],
 "completion": [{"role": "assistant", "content": "<search>rotor</search>"}],
 "question_id": "q1", "trajectory_id": "q1-0", "step": 1, "num_steps": 1, "reward": 0.37, "trajectory_reward": 0.37,
 "advantage": 0.25, "temperature": 1.0, "completion_token_ids": [44, 10552, 46, ...], "completion_logprobs": [-0.1, ...],
 "prompt_digest": "9f86d081884c7d65..."}

Every reply counts, dropped and unreadable ones too, word for word and in the tokens that were drawn: a policy learns from what it
did.  Replies to another opening (collect.prompt_sets) and those of baselines are not its own, and left out.  The rewards are
those of the process stage.  The advantage is the reward above the mean of the question's replies at the same step, not divided by
their deviation: that would blow up groups in which little is at stake (https://arxiv.org/abs/2503.20783).  A group whose searches
are all worth the same has no advantage, whatever its replies looked like; a call before an order is worth what that earns where
`process.reward` says so.  A rollout of the task answer that breaks down in the
errors of its tools is cut before them, and never has less advantage than none (see `process.fatal`).
A trainer that samples its own replies, as TRL's GRPO
does, reads the prompts alone.
"""

import polars as pl

from drag_ray.engine.generate import Message
from drag_ray.engine.sampling import PRESETS
from drag_ray.format.columns import Row
from drag_ray.format.config import FormatConfig
from drag_ray.format.examples import RewardedExample
from drag_ray.format.messages import as_reply, cut_conversation
from drag_ray.format.row_format import RowFormat
from drag_ray.format.tables import ScoredPart
from drag_ray.types import ActionKind

_TEMPERATURES = {name: sampling.temperature for name, sampling in PRESETS.items()}


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
    """what the reward is above the mean of the question's replies at this step"""
    temperature: float
    """at which the reply was drawn; 1 where the preset is not known"""
    completion_token_ids: list[int]
    completion_logprobs: list[float]
    """of the tokens at temperature 1, as the engine had them; empty if it was not asked for them"""
    prompt_digest: str
    """of the prompt as the engine had it, with its images (`engine.prompt_digest`); empty where that is not known"""


def build_rows(part: ScoredPart, config: FormatConfig) -> pl.DataFrame:
    """One row for each turn of the policy whose search, if it was one, did run."""
    is_past_fatal = (pl.col("step") >= pl.col("fatal_step")).fill_null(False)
    is_look = (pl.col("task") == "rerank") & (pl.col("action") == ActionKind.TOOL.value)
    outcome = pl.when(is_look).then("reward").otherwise("utility")
    advantage = group_advantage("reward", outcome, "question_id", "step")
    whole = part.trajectories.select("trajectory_id", "num_turns", trajectory_reward="reward")
    steps = (
        part.turns.filter(~pl.col("has_error"), pl.col("prompt_set") == 0, ~is_past_fatal)
        .join(whole, on="trajectory_id", maintain_order="left")
        .with_columns(
            advantage=pl.when(pl.col("fatal_step").is_null()).then(advantage).otherwise(advantage.clip(0.0)),
            temperature=pl.col("preset").replace_strict(_TEMPERATURES, default=1.0, return_dtype=pl.Float64),
        )
    )
    return part.add_conversations(steps).select(
        cut_conversation("num_prompt_messages").alias("prompt"),
        as_reply("reply").alias("completion"),
        *("question_id", "trajectory_id", "step"),
        pl.col("num_turns").cast(pl.Int32).alias("num_steps"),
        *("reward", "trajectory_reward", "advantage", "temperature", "completion_token_ids"),
        pl.col("completion_logprobs").cast(pl.List(pl.Float64)),
        "prompt_digest",
    )


def group_advantage(reward: str, outcome: pl.Expr, *group: str) -> pl.Expr:
    """How much a reward is above the mean of its group; 0 where all outcomes of the group are the same."""
    above = pl.col(reward) - pl.col(reward).mean().over(*group)
    return pl.when(outcome.n_unique().over(*group) > 1).then(above).otherwise(0.0)


def to_example(row: StepRow) -> RewardedExample:
    """The reply with its own reward."""
    return RewardedExample(row["prompt"], row["completion"][0], row["reward"])


FORMAT = RowFormat(
    row=StepRow,
    summary="every reply with its reward and advantage (RL: prompt, completion, completion_token_ids, advantage)",
    build_rows=build_rows,
    to_example=to_example,
)
