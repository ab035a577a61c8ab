"""The comparison as Markdown, to be put into an issue, a model card or a paper's notes."""

import re
from collections.abc import Sequence

from drag_ray.evaluate.comparison import Comparison
from drag_ray.evaluate.context import ReportContext
from drag_ray.evaluate.outline import Part, build_outline

_MARKS = re.compile(r"[\\|`*_<~]|!(?=\[)|(?<=\])[(\[:]")
"""What begins markup in a line; brackets alone, which intervals have, are none."""


def format_markdown(comparison: Comparison, context: ReportContext) -> str:
    """The parts of the outline with their headings, the verdict first."""
    *parts, verdict = build_outline(comparison, context)
    sections = [f"# {_escape(context.title)}", *(_format_part(part) for part in (verdict, *parts))]
    return "\n\n".join(sections) + "\n"


def _format_part(part: Part) -> str:
    table = [_format_table(part.table)] if part.table else []
    return "\n\n".join([f"## {part.heading}", *(_escape(sentence) for sentence in part.sentences), *table])


def _format_table(table: Sequence[Sequence[str]]) -> str:
    head, *rows = ([_escape(cell) for cell in row] for row in table)
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def _escape(text: str) -> str:
    """Names of runs and policies are free text: none may end a line or a cell, or be read as markup, a link or a picture."""
    return _MARKS.sub(r"\\\g<0>", " ".join(text.split()))
