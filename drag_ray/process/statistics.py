"""Statistics of a collection of trajectories: counts that add up over its parts, the figures of its table, and the table."""

from collections import Counter
from typing import Any

import polars as pl

from drag_ray.process.quality import describe_reason
from drag_ray.rollout.counts import count_yields
from drag_ray.types import ActionKind

_LEFT_OUT = {
    "repeated_records": "repeated records",
    "failed_rollouts": "failed rollouts",
    "other_split": "outside the training split",
    "unanswerable": "of questions without evidence",
    "malformed": "malformed",
    "unjudged": "without a verdict of the judge",
}
_Row = tuple[str, int | str, str]
"""(label, figure, share of a whole or nothing) of a line of the table"""


def count_part(turns: pl.DataFrame, trajectories: pl.DataFrame) -> Counter[Any]:
    """Counts of one part that holds all trajectories of its questions.  A distribution's keys are (name, value).

    Trajectories with a hint, and those of baselines, say nothing of the policy: they are counted on their own, and nowhere else.
    """
    hinted, proposals = trajectories.filter("hinted"), trajectories.filter(pl.col("baseline") != "")
    own = ~pl.col("hinted") & (pl.col("baseline") == "")
    won_proposals = proposals.filter(pl.col("best_gain") > 0)
    turns, trajectories = turns.filter(own), trajectories.filter(own)
    valid = trajectories.filter("valid")
    searches = turns.filter(pl.col("action") == ActionKind.SEARCH.value)
    calls = turns.filter(pl.col("action") == ActionKind.TOOL.value)
    wins = turns.filter("is_scored", pl.col("gain") > 0)
    first = searches.filter(pl.col("step") == 1, ~pl.col("has_error"))
    counts: Counter[Any] = Counter(
        trajectories=trajectories.height,
        valid=valid.height,
        questions=trajectories["question_id"].n_unique(),
        **count_yields(searches.filter(~pl.col("has_error"))),
        first_searches=first.height,
        first_wins=first.filter(pl.col("gain") > 0).height,
        first_losses=first.filter(pl.col("gain") < 0).height,
        questions_with_win=wins["question_id"].n_unique(),
        proposals=proposals.height,
        proposals_with_win=won_proposals.height,
        questions_with_proposed_win=won_proposals["question_id"].n_unique(),
        hinted=hinted.height,
        hinted_valid=hinted.filter("valid").height,
        hinted_questions=hinted.filter("valid")["question_id"].n_unique(),
        turns=turns.height,
        invalid_replies=turns.filter(pl.col("action") == ActionKind.INVALID.value).height,
        searches=searches.height,
        zero_hit_searches=searches.filter(pl.col("num_hits") == 0, ~pl.col("has_error")).height,
        repeated_queries=searches.filter("is_repeated").height,
        usable_searches=searches.filter(pl.col("drop_reason") == "").height,
        usable_wins=wins.filter(pl.col("drop_reason") == "").height,
        **trajectories.select(sum_cumulative_effort=pl.col("cumulative_effort").sum(), sum_reward=pl.col("reward").sum()).row(
            0, named=True
        ),
    )
    for name, values in (
        ("first_success_step", valid["first_success_step"]),
        ("best_rank", valid["best_rank"]),
        ("dropped", searches.filter(pl.col("drop_reason") != "")["drop_reason"]),
        ("tool_calls", calls["tool"]),
        ("tool_errors", calls.filter("has_error")["tool"]),
    ):
        counts.update({(name, value): count for value, count in values.value_counts().iter_rows()})
    for tool, seconds in calls.group_by("tool").agg(pl.col("tool_s").cast(pl.Float64).sum()).iter_rows():
        counts["tool_seconds", tool] += seconds
    return counts


def compute_statistics(counts: Counter[Any]) -> dict[str, Any]:
    """The figures of the sum of all parts' counts (and of what was left out), with shares, means and distributions.

    There is at least one trajectory.
    """
    num_trajectories, num_questions = counts["trajectories"], counts["questions"]

    def take(*names: str) -> dict[str, int]:
        return {name: counts[name] for name in names}

    def distribute(*names: str) -> dict[str, dict[str, int]]:
        return {name: _pick_distribution(counts, name) for name in names}

    return {
        **take("trajectories", "valid"),
        "filtered": num_trajectories - counts["valid"],
        **distribute("first_success_step", "best_rank"),
        "mean_cumulative_effort": counts["sum_cumulative_effort"] / num_trajectories,
        "mean_reward": counts["sum_reward"] / num_trajectories,
        **take("questions", "questions_with_success"),
        "yield": counts["questions_with_success"] / num_questions,
        **take("distinct_successful_queries"),
        "successful_queries_per_question": counts["distinct_successful_queries"] / num_questions,
        **take("preference_pairs"),
        "preference_pairs_per_question": counts["preference_pairs"] / num_questions,
        **take("first_searches", "first_wins", "first_losses", "questions_with_win"),
        **take("proposals", "proposals_with_win", "questions_with_proposed_win"),
        **take("hinted", "hinted_valid", "hinted_questions"),
        **take("turns", "invalid_replies", "searches", "zero_hit_searches", "repeated_queries"),
        **distribute("dropped", "tool_calls", "tool_errors", "tool_seconds"),
        **take("usable_searches", "usable_wins", *_LEFT_OUT, "judged_answers", "unjudged_queries"),
    }


def format_statistics(figures: dict[str, Any]) -> str:
    """The statistics as a table to print, one figure a line."""

    def row(label: str, name: str, whole: str = "") -> _Row:
        return label, figures[name], _share(figures[name], figures[whole]) if whole else ""

    proposals = [
        row("Proposals of baselines, not above", "proposals"),
        row("  better than the question", "proposals_with_win", "proposals"),
        row("  questions that they beat", "questions_with_proposed_win", "questions"),
    ]
    hinted = [
        row("Trajectories with a hint, not above", "hinted"),
        row("  valid (evidence found)", "hinted_valid", "hinted"),
        row("  questions found by them alone", "hinted_questions", "questions"),
    ]
    judged = [
        row("Answers that the judge has judged", "judged_answers"),
        row("  whose searches have no verdict", "unjudged_queries"),
    ]
    dropped = {describe_reason(name): count for name, count in figures["dropped"].items()}
    rows = [
        row("Total trajectories", "trajectories"),
        row("Valid (evidence found)", "valid", "trajectories"),
        row("Filtered (evidence not found)", "filtered", "trajectories"),
        *_list_distribution("First success at turn", figures["first_success_step"], figures["valid"]),
        *_list_distribution("Best rank", figures["best_rank"], figures["valid"]),
        ("Mean cumulative effort score", f"{figures['mean_cumulative_effort']:.3f}", ""),
        ("Mean reward", f"{figures['mean_reward']:.3f}", ""),
        row("Questions", "questions"),
        row("  with a success (yield)", "questions_with_success", "questions"),
        ("  successful queries a question", f"{figures['successful_queries_per_question']:.2f}", ""),
        ("  pairs a question: one found, one missed", f"{figures['preference_pairs_per_question']:.2f}", ""),
        row("First searches", "first_searches"),
        row("  better than the question", "first_wins", "first_searches"),
        row("  worse than the question", "first_losses", "first_searches"),
        row("Questions that a search beats", "questions_with_win", "questions"),
        *(proposals if figures["proposals"] else ()),
        *(hinted if figures["hinted"] else ()),
        row("Model replies", "turns"),
        row("  invalid", "invalid_replies", "turns"),
        row("Searches", "searches"),
        row("  without a hit", "zero_hit_searches", "searches"),
        row("  repeated in a trajectory", "repeated_queries", "searches"),
        *_list_distribution("Dropped:", dropped, figures["searches"]),
        row("  to train with", "usable_searches", "searches"),
        row("  to train towards", "usable_wins", "searches"),
        *_list_tools(figures),
        *(judged if figures["judged_answers"] else ()),
        *(row(f"Left out: {label}", name) for name, label in _LEFT_OUT.items()),
    ]
    width = max(len(label) for label, _, _ in rows)
    return "\n".join(f"{label:<{width}}{value:>9}{share:>9}" for label, value, share in rows)


def _list_tools(figures: dict[str, Any]) -> list[_Row]:
    """The calls of each tool, the mean seconds of one, and how many failed."""
    rows: list[_Row] = []
    for tool, num_calls in figures["tool_calls"].items():
        rows.append((f"Calls of {tool}", num_calls, f"{figures['tool_seconds'][tool] / num_calls:.2f} s"))
        num_errors = figures["tool_errors"].get(tool, 0)
        rows += [("  that failed", num_errors, _share(num_errors, num_calls))] if num_errors else []
    return rows


def _pick_distribution(counts: Counter[Any], name: str) -> dict[str, int]:
    return {str(key[1]): counts[key] for key in sorted(key for key in counts if isinstance(key, tuple) and key[0] == name)}


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ""


def _list_distribution(label: str, counts: dict[str, int], whole: int) -> list[_Row]:
    return [(f"  {label} {value}", count, _share(count, whole)) for value, count in counts.items()]
