"""The comparison as plain text for the terminal."""

import textwrap
from collections.abc import Sequence

from drag_ray.evaluate.comparison import Comparison
from drag_ray.evaluate.context import ReportContext, write_caption, write_incidents
from drag_ray.evaluate.measures import Unit
from drag_ray.evaluate.notation import write_interval, write_number, write_p_value
from drag_ray.evaluate.rows import Row
from drag_ray.evaluate.verdict import write_verdict

_WIDTH = 120


def format_console(comparison: Comparison, context: ReportContext) -> str:
    """The metrics, the differences to the baseline, what qualifies them and the verdict."""
    labels = [_write_label(row) for row in comparison.rows]
    metrics_table = [["measure", *comparison.policies]]
    metrics_table += [[label, *_write_metrics(row, comparison)] for label, row in zip(labels, comparison.rows, strict=True)]
    differences_table = [["difference", *(f"{d.policy} - {d.reference}" for d in comparison.rows[0].differences)]]
    differences_table += [[label, *_write_differences(row)] for label, row in zip(labels, comparison.rows, strict=True)]
    sections = [
        _align_columns(metrics_table),
        _align_columns(differences_table),
        _wrap([write_caption(comparison, context)]),
        _wrap(write_incidents(comparison)),
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
        cells.append(_join(value, interval and f"[{interval}]", write_p_value(difference.p_value)))
    return cells


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _align_columns(table: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _wrap(paragraphs: Sequence[str]) -> str:
    return "\n".join(textwrap.fill(paragraph, _WIDTH) for paragraph in paragraphs)
