"""The comparison as Markdown, to be put into an issue, a model card or a paper's notes."""

from collections.abc import Sequence

from drag_ray.evaluate.comparison import Comparison
from drag_ray.evaluate.context import ReportContext
from drag_ray.evaluate.outline import Part, build_outline


def format_markdown(comparison: Comparison, context: ReportContext) -> str:
    """The parts of the outline with their headings, the verdict first."""
    *parts, verdict = build_outline(comparison, context)
    sections = [f"# {context.title}", *(_format_part(part) for part in (verdict, *parts))]
    return "\n\n".join(sections) + "\n"


def _format_part(part: Part) -> str:
    table = [_format_table(part.table)] if part.table else []
    return "\n\n".join([f"## {part.heading}", *(_escape(sentence) for sentence in part.sentences), *table])


def _format_table(table: Sequence[Sequence[str]]) -> str:
    head, *rows = ([_escape(cell) for cell in row] for row in table)
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def _escape(text: str) -> str:
    """Names of policies are free text: none of them may end a cell, or be read as markup."""
    for mark in "\\|`*_<":
        text = text.replace(mark, f"\\{mark}")
    return text
