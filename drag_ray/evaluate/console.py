"""The comparison as plain text for the terminal."""

import textwrap
from collections.abc import Sequence

from drag_ray.evaluate.caption import write_caption, write_incidents, write_split
from drag_ray.evaluate.comparison import Comparison
from drag_ray.evaluate.context import ReportContext
from drag_ray.evaluate.measures import Unit
from drag_ray.evaluate.notation import write_interval, write_number, write_test
from drag_ray.evaluate.rows import Row
from drag_ray.evaluate.verdict import write_room, write_verdict

_WIDTH = 120


def format_console(comparison: Comparison, context: ReportContext) -> str:
    """The metrics, the differences to the baseline, what qualifies them and the verdict."""
    labels = [_write_label(row) for row in comparison.rows]
    metrics_table = [["measure", *comparison.policies]]
    metrics_table += [[label, *_write_metrics(row, comparison)] for label, row in zip(labels, comparison.rows, strict=True)]
    differences_table = [["difference", *(f"{d.policy} - {d.reference}" for d in comparison.rows[0].differences)]]
    differences_table += [[label, *_write_differences(row)] for label, row in zip(labels, comparison.rows, strict=True)]
    sections = [
        _wrap([write_split(comparison)]),
        _align_columns(metrics_table),
        _align_columns(differences_table),
        _align_columns(_build_turns_table(comparison)) if comparison.turns else "",
        _wrap([write_caption(comparison, context)]),
        _wrap(write_incidents(comparison)),
        _wrap([write_room(comparison)]),
        _wrap(write_verdict(comparison)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _write_label(row: Row) -> str:
    return f"{row.label}{' %' if row.unit is Unit.SHARE else ''}{'' if row.higher_is_better else ' (less is better)'}"


def _write_metrics(row: Row, comparison: Comparison) -> list[str]:
    cells = []
    for metric in row.metrics.values():
        interval = write_interval(metric, row.unit)
        size = f"n={metric.n}" if metric.n < comparison.num_questions else ""
        cells.append(_join(write_number(metric.value, row.unit), interval and f"[{interval}]", size))
    return cells


def _write_differences(row: Row) -> list[str]:
    cells = []
    for difference in row.differences:
        interval = write_interval(difference, row.unit, signed=True)
        value = write_number(difference.value, row.unit, signed=True)
        cells.append(_join(value, interval and f"[{interval}]", write_test(difference)))
    return cells


def _build_turns_table(comparison: Comparison) -> list[list[str]]:
    table = [["success within turn", "pages", "%", "first search alone %", "the question %", "difference"]]
    for policy, turns in comparison.turns.items():
        for row in turns:
            shares = [write_number(share, Unit.SHARE) for share in (row.success, row.first_search, row.question)]
            interval = write_interval(row, Unit.SHARE, signed=True)
            difference = _join(write_number(row.difference, Unit.SHARE, signed=True), interval and f"[{interval}]")
            table.append([f"{policy} {row.turn}", write_number(row.num_pages, Unit.COUNT), *shares, difference])
    return table


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _align_columns(table: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _wrap(paragraphs: Sequence[str]) -> str:
    return "\n".join(textwrap.fill(paragraph, _WIDTH) for paragraph in paragraphs)
