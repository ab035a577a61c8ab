"""What a comparison says in tables and sentences, before it is written for a terminal or as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from drag_ray.evaluate.caption import write_caption, write_incidents, write_split
from drag_ray.evaluate.comparison import Comparison
from drag_ray.evaluate.context import ReportContext
from drag_ray.evaluate.differences import Difference
from drag_ray.evaluate.effort import EFFORT_LABELS
from drag_ray.evaluate.measure import Unit
from drag_ray.evaluate.notation import (
    NO_VALUE,
    join_parts,
    write_finding,
    write_interval,
    write_label,
    write_number,
    write_ratio,
    write_test,
)
from drag_ray.evaluate.rows import Row
from drag_ray.evaluate.verdict import write_room, write_verdict


@dataclass(frozen=True, slots=True)
class Part:
    """A heading with sentences and a table, of which either may be empty; the first row of the table is its head."""

    heading: str
    sentences: Sequence[str] = ()
    table: Sequence[Sequence[str]] = ()


def build_outline(comparison: Comparison, context: ReportContext) -> list[Part]:
    """The parts in the order in which they explain each other; the verdict, which rests on all of them, is the last."""
    parts = [
        Part("Questions", [write_split(comparison, context)]),
        Part("Measures", table=_build_metrics_table(comparison)),
        Part("Differences", table=_build_differences_table(comparison)),
        Part("Tests", table=build_tests_table(comparison)),
        Part("Parts of the questions", table=build_strata_table(comparison)),
        Part("Recall by task", table=build_recalls_table(comparison)),
        Part("Effort", table=build_effort_table(comparison)),
        Part("Later turns", table=_build_turns_table(comparison)),
        Part("What qualifies the numbers", [write_caption(comparison, context)]),
        Part("What went wrong", write_incidents(comparison)),
        Part("Room", [write_room(comparison)]),
        Part("Verdict", write_verdict(comparison)),
    ]
    return [part for part in parts if part.sentences or part.table]


def _build_metrics_table(comparison: Comparison) -> list[list[str]]:
    rows = [[write_label(row), *_write_metrics(row, comparison)] for row in comparison.rows]
    return [["measure", *comparison.policies], *rows]


def _write_metrics(row: Row, comparison: Comparison) -> list[str]:
    cells = []
    for metric in row.metrics.values():
        interval = write_interval(metric, row.unit)
        size = f"n={metric.n}" if metric.n < comparison.num_questions else ""
        cells.append(join_parts(write_number(metric.value, row.unit), interval and f"[{interval}]", size))
    return cells


def _build_differences_table(comparison: Comparison) -> list[list[str]]:
    head = ["difference", *(f"{d.policy} - {d.reference}" for d in comparison.rows[0].differences)]
    return [head, *([write_label(row), *(_write_difference(d, row) for d in row.differences)] for row in comparison.rows)]


def _write_difference(difference: Difference, row: Row) -> str:
    interval = write_interval(difference, row.unit, signed=True)
    return join_parts(write_number(difference.value, row.unit, signed=True), interval and f"[{interval}]", write_test(difference))


def build_tests_table(comparison: Comparison) -> list[list[str]]:
    """The differences on which the verdict may rest, what would have been detected, and what they come to; empty without any."""
    rows = [
        [
            write_label(row),
            d.reference,
            write_finding(d, comparison.criterion),
            _write_difference(d, row),
            write_number(d.detectable, row.unit),
        ]
        for row in comparison.rows
        for d in row.differences
        if d.finding
    ]
    return [["test", f"{comparison.subject} against", "finding", "difference", "detectable"], *rows] if rows else []


def build_strata_table(comparison: Comparison) -> list[list[str]]:
    """The primary measure on each part of the questions; empty without parts."""
    return _build_parts_table(comparison.primary.label.lower(), comparison.strata, comparison)


def build_recalls_table(comparison: Comparison) -> list[list[str]]:
    """The recall of lists that were put in order; empty without any."""
    return _build_parts_table("recall", comparison.recalls, comparison)


def _build_parts_table(measured: str, parts: Sequence[Row], comparison: Comparison) -> list[list[str]]:
    rows = [
        [write_label(row), str(max(metric.n for metric in row.metrics.values()))]
        + [write_number(metric.value, row.unit) for metric in row.metrics.values()]
        + [_write_difference(difference, row) for difference in row.differences]
        for row in parts
    ]
    head = [measured, "questions", *comparison.policies, f"{comparison.subject} - {comparison.baseline}"]
    return [head, *rows] if rows else []


def build_effort_table(comparison: Comparison) -> list[list[str]]:
    """The ratios that have a value for some policy; empty without any."""
    efforts = comparison.efforts
    columns = [[write_ratio(ratio) for ratio in effort.list_ratios()] for effort in efforts.values()]
    rows = [[label, *cells] for label, *cells in zip(EFFORT_LABELS.values(), *columns, strict=True) if set(cells) != {NO_VALUE}]
    return [["effort", *efforts], *rows] if rows else []


def _build_turns_table(comparison: Comparison) -> list[list[str]]:
    table = [["success within turn", "pages", "%", "first search alone %", "the question %", "difference"]]
    for policy, turns in comparison.turns.items():
        for row in turns:
            shares = [write_number(share, Unit.SHARE) for share in (row.success, row.first_search, row.question)]
            interval = write_interval(row, Unit.SHARE, signed=True)
            difference = join_parts(write_number(row.difference, Unit.SHARE, signed=True), interval and f"[{interval}]")
            table.append([f"{policy} {row.turn}", write_number(row.num_pages, Unit.COUNT), *shares, difference])
    return table if comparison.turns else []
