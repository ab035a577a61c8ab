"""What a collection of trajectories came to: the figures of its table, and the table."""

from typing import Any

import polars as pl

from drag_ray.process.trajectories import LoadedTrajectories


def compute_statistics(loaded: LoadedTrajectories, searches: pl.DataFrame, trajectories: pl.DataFrame) -> dict[str, Any]:
    """Counts, shares and distributions of the training trajectories.

    Args:
        loaded: says what was left out before.
        searches: as of `explode_searches`.
        trajectories: as of `summarise_trajectories`.
    """
    valid = trajectories.filter("valid")
    successes = searches.filter("found")
    num_questions = trajectories["question_id"].n_unique()
    num_solved = valid["question_id"].n_unique()
    num_distinct = successes.select("question_id", "query_key").n_unique()
    return {
        "trajectories": trajectories.height,
        "valid": valid.height,
        "filtered": trajectories.height - valid.height,
        "first_success_step": _count_values(valid["first_success_step"]),
        "best_rank": _count_values(valid["best_rank"]),
        "mean_cumulative_effort": trajectories["cumulative_effort"].mean(),
        "questions": num_questions,
        "questions_with_success": num_solved,
        "yield": num_solved / num_questions,
        "distinct_successful_queries": num_distinct,
        "successful_queries_per_question": num_distinct / num_questions,
        "turns": int(trajectories["num_turns"].sum()),
        "invalid_replies": int(trajectories["num_invalid"].sum()),
        "searches": searches.height,
        "failed_searches": searches.filter("has_error").height,
        "truncated_searches": searches.filter("is_truncated").height,
        "zero_hit_searches": searches.filter(pl.col("num_hits") == 0, ~pl.col("has_error")).height,
        "repeated_queries": searches.filter("is_repeated").height,
        "failed_rollouts": loaded.num_failed,
        "repeated_records": loaded.num_repeated,
        "other_split": loaded.num_other_split,
        "malformed": loaded.num_malformed,
    }


def format_statistics(statistics: dict[str, Any]) -> str:
    """The statistics as a table to print, one figure a line."""
    figures = statistics
    rows = [
        ("Total trajectories", figures["trajectories"], ""),
        ("Valid (evidence found)", figures["valid"], _share(figures["valid"], figures["trajectories"])),
        ("Filtered (evidence not found)", figures["filtered"], _share(figures["filtered"], figures["trajectories"])),
        *_distribution_rows("First success at turn", figures["first_success_step"], figures["valid"]),
        *_distribution_rows("Best rank", figures["best_rank"], figures["valid"]),
        ("Mean cumulative effort score", f"{figures['mean_cumulative_effort']:.3f}", ""),
        ("Questions", figures["questions"], ""),
        ("  with a success (yield)", figures["questions_with_success"], f"{figures['yield']:.1%}"),
        ("  successful queries a question", f"{figures['successful_queries_per_question']:.2f}", ""),
        ("Model replies", figures["turns"], ""),
        ("  invalid", figures["invalid_replies"], _share(figures["invalid_replies"], figures["turns"])),
        ("Searches", figures["searches"], ""),
        *(
            (f"  {label}", figures[key], _share(figures[key], figures["searches"]))
            for label, key in (
                ("without a hit", "zero_hit_searches"),
                ("repeated in a trajectory", "repeated_queries"),
                ("cut at the token limit", "truncated_searches"),
                ("failed", "failed_searches"),
            )
        ),
        ("Left out: failed rollouts", figures["failed_rollouts"], ""),
        ("Left out: repeated records", figures["repeated_records"], ""),
        ("Left out: outside the training split", figures["other_split"], ""),
        ("Left out: malformed", figures["malformed"], ""),
    ]
    return "\n".join(f"{label:<38}{value:>9}{share:>9}" for label, value, share in rows)


def _count_values(values: pl.Series) -> dict[str, int]:
    counts = values.value_counts().sort(values.name)
    return {str(value): count for value, count in counts.iter_rows()}


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ""


def _distribution_rows(label: str, counts: dict[str, int], whole: int) -> list[tuple[str, int, str]]:
    return [(f"  {label} {value}", count, _share(count, whole)) for value, count in counts.items()]
