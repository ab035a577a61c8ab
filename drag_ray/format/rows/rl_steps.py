"""Step-level data for reinforcement learning: what the policy was shown, what it wrote, and what that earned.

{"prompt": [{"role": "system", ...}, {"role": "user", "content": "Question: ..."}],
 "completion": [{"role": "assistant", "content": "<search>rotor</search>"}],
 "question_id": "q1", "trajectory_id": "q1-0", "step": 1, "num_steps": 1, "reward": 0.37, "trajectory_reward": 0.37,
 "advantage": 0.25, "temperature": 1.0, "completion_token_ids": [44, 10552, 46, ...], "completion_logprobs": [-0.1, ...],
 "prompt_digest": "9f86d081884c7d65..."}

Every reply counts, dropped and unreadable ones too, word for word and in the tokens that were drawn: a policy learns from what it
did.  Replies to another opening (collect.prompt_sets) and those of baselines are not its own, and left out.  The rewards are
those of the process stage; the advantage says how much more a reply led to than the question's other rollouts had (`_credit`).
It is not divided by their deviation: that would blow up groups in which little is at stake (https://arxiv.org/abs/2503.20783).
A rollout of the task answer that breaks down in the errors of its tools is cut before them, and never has less advantage than
none (see `process.turns`); the mean has it all the same.
A trainer that samples its own replies, as TRL's GRPO
does, reads the prompts alone.
"""

import polars as pl

from drag_ray.agent.tasks import ANSWERING, ORDERING, SEARCHING
from drag_ray.engine.generate import Message
from drag_ray.engine.sampling import PRESETS
from drag_ray.format.columns import RewardedExample, Row
from drag_ray.format.config import FormatConfig
from drag_ray.format.row_format import RowFormat
from drag_ray.format.selection import as_reply, cut_conversation
from drag_ray.format.tables import ScoredPart
from drag_ray.types import ActionKind


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
    """the sum of its replies'"""
    advantage: float
    """of what the reply led to, above the mean of the question's rollouts"""
    temperature: float
    """at which the reply was drawn; 1 where the preset is not known"""
    completion_token_ids: list[int]
    completion_logprobs: list[float]
    """of the tokens at temperature 1, as the engine had them; empty if it was not asked for them"""
    prompt_digest: str
    """of the prompt as the engine had it, with its images (`engine.prompt_digest`); empty where that is not known"""


def build_rows(part: ScoredPart, config: FormatConfig) -> pl.DataFrame:
    """One row for each turn of the policy whose search, if it was one, did run."""
    did_run = ~pl.col("has_error") | (pl.col("action") != ActionKind.SEARCH.value)
    is_past_fatal = (pl.col("step") >= pl.col("fatal_step")).fill_null(False)
    whole = part.trajectories.select("trajectory_id", "num_turns", trajectory_reward="reward")
    known = {name: PRESETS.find(name) for name in part.turns["preset"].unique()}
    temperatures = {name: sampling.temperature for name, sampling in known.items() if sampling}
    steps = (
        # A rollout of searches that all failed is one of those that an answer is compared with.
        _credit(part.turns.filter(did_run | pl.col("task").is_in(ANSWERING), pl.col("prompt_set") == 0), config)
        .filter(did_run, ~is_past_fatal)
        .join(whole, on="trajectory_id", maintain_order="left")
        .with_columns(temperature=pl.col("preset").replace_strict(temperatures, default=1.0, return_dtype=pl.Float64))
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


def _credit(turns: pl.DataFrame, config: FormatConfig) -> pl.DataFrame:
    """The turns with their `advantage`: the return of each above that of its peers (`format.baseline`), each rollout once.

    - answer: the return is the reward of the rollout, and the peers are all rollouts of the question.
    - rerank: the return is the reward of the window, calls and order together, and the peers are the same window of the others.
    - find_page: the return is the reward of the reply and of those after it, and the peers are the rollouts that came to the
      same state (as in GiGPO, https://arxiv.org/abs/2505.10978): what can still be gained depends on what was found before. A
      state that one rollout alone came to has nothing to be compared with, and no advantage. Nor has one from which on all
      searches and answers of the peers are worth the same: costs alone are nothing to learn from.
    """
    task, in_group = pl.col("task"), ("task", "question_id", "peers")
    window = pl.col("window").cast(pl.UInt64)
    worth = pl.when(pl.col("action") == ActionKind.ANSWER.value).then("reward").otherwise("utility")
    of_peers = pl.col("reward").sum().over("trajectory_id", "peers")
    above = pl.col("return") - _expect(pl.col("return").filter("is_first"), config).over(in_group)
    if config.baseline == "others":
        number = pl.col("is_first").sum().over(in_group)
        above = pl.when(number > 1).then(above * number / (number - 1)).otherwise(0.0)
    kept = pl.when(pl.col("fatal_step").is_null()).then(above).otherwise(above.clip(0.0))
    differs = ~task.is_in(SEARCHING) | (pl.struct("worth", "worth_from_here", "improvement").n_unique().over(in_group) > 1)
    return (
        turns.with_columns(
            worth=worth,
            peers=pl.when(task.is_in(ANSWERING))
            .then(pl.lit(0, pl.UInt64))
            .when(task.is_in(ORDERING))
            .then(window)
            .otherwise("state"),
        )
        .with_columns(
            pl.when(task.is_in(SEARCHING)).then(_sum_from_here("reward")).otherwise(of_peers).alias("return"),
            is_first=pl.struct("trajectory_id", "peers").is_first_distinct(),
            worth_from_here=_sum_from_here("worth"),
        )
        .with_columns(advantage=pl.when(differs).then(kept).otherwise(0.0))
    )


def _expect(returns: pl.Expr, config: FormatConfig) -> pl.Expr:
    """The return that those of peers are compared with. The mean of the others is n / (n - 1) times as far from a return."""
    if config.baseline != "optimal":
        return returns.mean()
    most = returns.max()  # whose exponential could be too large for a number, and that of all too small
    return most + (returns - most).exp().mean().log()


def _sum_from_here(name: str) -> pl.Expr:
    """Of each turn and those after it."""
    return pl.col(name).cum_sum(reverse=True).over("trajectory_id")


def to_example(row: StepRow) -> RewardedExample:
    """The reply with its own reward."""
    return RewardedExample(row["prompt"], row["completion"][0], row["reward"])


FORMAT = RowFormat(
    row=StepRow,
    summary="every reply with its reward and advantage (RL: prompt, completion, completion_token_ids, advantage)",
    build_rows=build_rows,
    to_example=to_example,
)
