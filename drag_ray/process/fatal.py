"""Rollouts that break down in the errors of their tools, as OpenSearch-VL trains on them (fatal-aware GRPO).

What was said before the breakdown may have been right: it can be encouraged and is never discouraged. What follows says nothing
of the policy and is not learned. https://github.com/shawn0728/OpenSearch-VL. There a rollout that loops or ends without an answer
counts as broken down as well, so that it is never discouraged; here only one whose tools failed does.
"""

from collections.abc import Sequence

import polars as pl

MAX_ERRORS = 3
"""failed calls in a row that break a rollout down"""


def find_fatal_step(has_errors: Sequence[bool], max_errors: int = MAX_ERRORS) -> int | None:
    """The 0-based step that begins the first `max_errors` failed calls in a row; None without."""
    length = 0
    for step, has_error in enumerate(has_errors):
        length = length + 1 if has_error else 0
        if length == max_errors:
            return step - max_errors + 1
    return None


def add_fatal_steps(turns: pl.DataFrame) -> pl.DataFrame:
    """Add the column fatal_step: the 1-based step with which a rollout of the task answer breaks down, null where it does not."""
    errors = turns.filter(pl.col("task") == "answer").group_by("trajectory_id", maintain_order=True).agg("has_error")
    steps = [find_fatal_step(row) for row in errors["has_error"]]
    found = pl.Series("fatal_step", [None if step is None else step + 1 for step in steps], dtype=pl.Int32)
    return turns.join(errors.select("trajectory_id", found), on="trajectory_id", how="left", maintain_order="left")
