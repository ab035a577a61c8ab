"""The rewards of other systems in place of this one's, reply by reply: `process.reward`."""

import polars as pl

from drag_ray.process.answer_reward import Step, compute_answer_reward
from drag_ray.process.config import RewardName
from drag_ray.process.rerank_reward import compute_rerank_reward
from drag_ray.types import ActionKind


def take_published_rewards(turns: pl.DataFrame, name: RewardName) -> pl.DataFrame:
    """The turns with the column reward as that system has it, for the task that it has; those of other tasks stay as they are.

    v_retrver: each order of the task rerank earns its own. opensearch_vl: the last reply of the task answer earns that of the
    whole rollout, whose accuracy is the ANLS* of its answer; nobody judges its queries here.
    """
    rewards = turns["reward"].to_list()
    if name == "v_retrver":
        for place, row in enumerate(turns.select("task", "reply", "evidence_rank").iter_rows()):
            if row[0] == "rerank":
                rewards[place] = compute_rerank_reward(*row[1:])
    if name == "opensearch_vl":
        chosen = turns.with_row_index("place").filter(pl.col("task") == "answer")
        for rollout in chosen.partition_by("trajectory_id", maintain_order=True):
            for place in rollout["place"]:
                rewards[place] = 0.0
            rewards[rollout["place"][-1]] = _reward_rollout(rollout)
    return turns.with_columns(pl.Series("reward", rewards, dtype=pl.Float64))


def _reward_rollout(turns: pl.DataFrame) -> float:
    actions, fatal_step = turns["action"].to_list(), turns["fatal_step"][0]
    steps = [
        Step(action != ActionKind.INVALID.value, has_error)
        for action, has_error in zip(actions, turns["has_error"].to_list(), strict=True)
    ]
    reward = compute_answer_reward(
        steps,
        has_answer=actions[-1] == ActionKind.ANSWER.value,
        accuracy=turns["answer_reward"][0],
        fatal_step=None if fatal_step is None else fatal_step - 1,
    )
    assert reward is not None, "a measure always says how right an answer is"
    return reward
