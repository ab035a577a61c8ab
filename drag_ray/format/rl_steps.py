"""Step-level data for reinforcement learning: what the policy was shown, what it wrote, and what that earned.

{"prompt": [{"role": "system", ...}, {"role": "user", "content": "Question: ..."}],
 "completion": [{"role": "assistant", "content": "<search>rotor</search>"}],
 "question_id": "q1", "trajectory_id": "q1-0", "step": 1, "num_steps": 2, "reward": 0.3, "trajectory_reward": 0.95}

Every reply counts, flawed and unreadable ones too, word for word: a policy learns from what it did.  The rewards are those of the
process stage.  A trainer that samples its own replies, as TRL's GRPO does, reads the prompts alone.
"""

import polars as pl

from drag_ray.format.config import FormatConfig
from drag_ray.format.messages import as_reply, cut_conversation
from drag_ray.format.schemas import REWARDED_STEP
from drag_ray.format.tables import ScoredPart

SCHEMA = REWARDED_STEP


def build_rows(part: ScoredPart, config: FormatConfig) -> pl.DataFrame:
    """One row for each turn whose search, if it was one, did run."""
    whole = part.trajectories.select("trajectory_id", "num_turns", trajectory_reward="reward")
    steps = part.turns.filter(~pl.col("has_error")).join(whole, on="trajectory_id", maintain_order="left")
    return part.add_conversations(steps).select(
        cut_conversation("num_prompt_messages").alias("prompt"),
        as_reply("reply").alias("completion"),
        *("question_id", "trajectory_id", "step"),
        pl.col("num_turns").cast(pl.Int32).alias("num_steps"),
        *("reward", "trajectory_reward"),
    )
