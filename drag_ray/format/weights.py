"""What a row counts in the loss: the schemes of the agentic retrieval fine-tuning (DRAG) reference, with its floors."""

import polars as pl

from drag_ray.format.config import WeightScheme

_FLOOR = 0.1


def row_weight(scheme: WeightScheme) -> pl.Expr:
    """The weight of a row; reads the columns rank_score, evidence_rank and cumulative_effort, of those that the scheme needs."""
    score = pl.col("rank_score")
    weight = {
        "none": pl.lit(1.0),
        "rank_score": score.clip(_FLOOR),
        "rank_sq": (score**2).clip(_FLOOR),
        "inv_effort": pl.col("cumulative_effort").clip(_FLOOR),
        "binary": pl.when(pl.col("evidence_rank") == 1).then(1.0).otherwise(0.5),
    }[scheme]
    return weight.alias("weight")
