"""What is reported as plain text for the terminal."""

import textwrap
from collections.abc import Sequence

from drag_ray.evaluate.comparison import Comparison
from drag_ray.evaluate.context import ReportContext
from drag_ray.evaluate.outline import Part, build_outline

_WIDTH = 120


def format_console(comparison: Comparison, context: ReportContext) -> str:
    """The parts of the outline one below the other, the verdict where the eye is when all is printed."""
    return format_parts(build_outline(comparison, context))


def format_parts(parts: Sequence[Part]) -> str:
    """Sentences wrapped and tables aligned, without headings: a table's first cell says what it is of."""
    sections = [
        section for part in parts for section in (_wrap(part.sentences), _align_columns(part.table) if part.table else "")
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _align_columns(table: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _wrap(paragraphs: Sequence[str]) -> str:
    return "\n".join(textwrap.fill(paragraph, _WIDTH) for paragraph in paragraphs)
