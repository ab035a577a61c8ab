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
_JUDGED = ("judged_answers", "unjudged_queries")
_GAINS = (
    *("first_searches", "first_wins", "first_losses", "questions_with_win"),
    *("proposals", "proposals_with_win", "questions_with_proposed_win"),
)


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
    sums: dict[str, Any] = {
        "sum_cumulative_effort": trajectories["cumulative_effort"].sum(),
        "sum_reward": trajectories["reward"].sum(),
    }
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
        **sums,
    )
    counts.update(_count_values(valid, searches, calls))
    return counts


def _count_values(valid: pl.DataFrame, searches: pl.DataFrame, calls: pl.DataFrame) -> Counter[Any]:
    """The counts of each value of the distributions, and the seconds of each tool."""
    counts: Counter[Any] = Counter()
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
        **take(*_GAINS, "hinted", "hinted_valid", "hinted_questions"),
        **take("turns", "invalid_replies", "searches", "zero_hit_searches", "repeated_queries"),
        **distribute("dropped", "tool_calls", "tool_errors", "tool_seconds"),
        **take("usable_searches", "usable_wins", *_LEFT_OUT, *_JUDGED),
    }


def format_statistics(statistics: dict[str, Any]) -> str:
    """The statistics as a table to print, one figure a line."""
    figures = statistics
    num_searches, num_questions = figures["searches"], figures["questions"]
    dropped = {describe_reason(name): count for name, count in figures["dropped"].items()}
    rows = [
        ("Total trajectories", figures["trajectories"], ""),
        ("Valid (evidence found)", figures["valid"], _share(figures["valid"], figures["trajectories"])),
        ("Filtered (evidence not found)", figures["filtered"], _share(figures["filtered"], figures["trajectories"])),
        *_list_distribution("First success at turn", figures["first_success_step"], figures["valid"]),
        *_list_distribution("Best rank", figures["best_rank"], figures["valid"]),
        ("Mean cumulative effort score", f"{figures['mean_cumulative_effort']:.3f}", ""),
        ("Mean reward", f"{figures['mean_reward']:.3f}", ""),
        ("Questions", figures["questions"], ""),
        ("  with a success (yield)", figures["questions_with_success"], f"{figures['yield']:.1%}"),
        ("  successful queries a question", f"{figures['successful_queries_per_question']:.2f}", ""),
        ("  preference pairs a question", f"{figures['preference_pairs_per_question']:.2f}", ""),
        ("First searches", figures["first_searches"], ""),
        ("  better than the question", figures["first_wins"], _share(figures["first_wins"], figures["first_searches"])),
        ("  worse than the question", figures["first_losses"], _share(figures["first_losses"], figures["first_searches"])),
        ("Questions that a search beats", figures["questions_with_win"], _share(figures["questions_with_win"], num_questions)),
        *_list_proposals(figures),
        *_list_hinted(figures),
        ("Model replies", figures["turns"], ""),
        ("  invalid", figures["invalid_replies"], _share(figures["invalid_replies"], figures["turns"])),
        ("Searches", num_searches, ""),
        ("  without a hit", figures["zero_hit_searches"], _share(figures["zero_hit_searches"], num_searches)),
        ("  repeated in a trajectory", figures["repeated_queries"], _share(figures["repeated_queries"], num_searches)),
        *_list_distribution("Dropped:", dropped, num_searches),
        ("  to train with", figures["usable_searches"], _share(figures["usable_searches"], num_searches)),
        ("  to train towards", figures["usable_wins"], _share(figures["usable_wins"], num_searches)),
        *_list_tools(figures),
        *_list_judged(figures),
        *((f"Left out: {label}", figures[name], "") for name, label in _LEFT_OUT.items()),
    ]
    width = max(len(label) for label, _, _ in rows)
    return "\n".join(f"{label:<{width}}{value:>9}{share:>9}" for label, value, share in rows)


def _list_proposals(figures: dict[str, Any]) -> list[tuple[str, int, str]]:
    if not figures["proposals"]:
        return []
    num_wins, num_questions = figures["proposals_with_win"], figures["questions_with_proposed_win"]
    return [
        ("Proposals of baselines, not above", figures["proposals"], ""),
        ("  better than the question", num_wins, _share(num_wins, figures["proposals"])),
        ("  questions that they beat", num_questions, _share(num_questions, figures["questions"])),
    ]


def _list_hinted(figures: dict[str, Any]) -> list[tuple[str, int, str]]:
    if not figures["hinted"]:
        return []
    return [
        ("Trajectories with a hint, not above", figures["hinted"], ""),
        ("  valid (evidence found)", figures["hinted_valid"], _share(figures["hinted_valid"], figures["hinted"])),
        (
            "  questions found by them alone",
            figures["hinted_questions"],
            _share(figures["hinted_questions"], figures["questions"]),
        ),
    ]


def _list_tools(figures: dict[str, Any]) -> list[tuple[str, int, str]]:
    """The calls of each tool, the mean seconds of one, and how many failed."""
    rows: list[tuple[str, int, str]] = []
    for tool, num_calls in figures["tool_calls"].items():
        rows.append((f"Calls of {tool}", num_calls, f"{figures['tool_seconds'][tool] / num_calls:.2f} s"))
        num_errors = figures["tool_errors"].get(tool, 0)
        rows += [("  that failed", num_errors, _share(num_errors, num_calls))] if num_errors else []
    return rows


def _list_judged(figures: dict[str, Any]) -> list[tuple[str, int, str]]:
    if not figures["judged_answers"]:
        return []
    return [
        ("Answers that the judge has judged", figures["judged_answers"], ""),
        ("  whose searches have no verdict", figures["unjudged_queries"], ""),
    ]


def _pick_distribution(counts: Counter[Any], name: str) -> dict[str, int]:
    return {str(key[1]): counts[key] for key in sorted(key for key in counts if isinstance(key, tuple) and key[0] == name)}


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ""


def _list_distribution(label: str, counts: dict[str, int], whole: int) -> list[tuple[str, int, str]]:
    return [(f"  {label} {value}", count, _share(count, whole)) for value, count in counts.items()]
