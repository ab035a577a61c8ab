"""The report of an evaluation: its parts for a terminal, as Markdown, and as one HTML file that needs nothing beside itself."""

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from drag_ray.agent.shown_images import ShownImage
from drag_ray.evaluate.comparison import Comparison
from drag_ray.evaluate.effort import EFFORT_LABELS
from drag_ray.evaluate.measure import Unit
from drag_ray.evaluate.report import formatting
from drag_ray.evaluate.report.context import ReportContext
from drag_ray.evaluate.report.examples import Examples, draw_pictures
from drag_ray.evaluate.report.formatting import write_difference, write_label, write_metric, write_number
from drag_ray.evaluate.report.plots import draw_hit_bars, draw_rank_changes, draw_training_curve
from drag_ray.evaluate.statistics.rows import Row
from drag_ray.storage.artifacts import write_text
from drag_ray.transcripts.thumbnails import ThumbnailStore
from drag_ray.transcripts.transcript import to_page
from drag_ray.transcripts.webpage import render_page
from drag_ray.types import Evidence

_WIDTH = 120
_MARKS = re.compile(r"[\\|`*_<~]|!(?=\[)|(?<=\])[(\[:]")
"""What begins markup in a line of Markdown; brackets alone, which intervals have, are none."""

Cells = list[list[str]]


@dataclass(frozen=True, slots=True)
class Part:
    """A heading with sentences and a table, of which either may be empty; the first row of the table is its head."""

    heading: str
    sentences: Sequence[str] = ()
    table: Sequence[Sequence[str]] = ()


def build_parts(comparison: Comparison, context: ReportContext) -> list[Part]:
    """The parts of a report, the verdict at the end, where the eye is when all is printed."""
    rows, size = comparison.rows, comparison.num_questions
    metrics = [[write_label(row), *(write_metric(metric, row, size) for metric in row.metrics.values())] for row in rows]
    differences = [[write_label(row), *(write_difference(d, row) for d in row.differences)] for row in rows]
    heads = [f"{d.policy} - {d.reference}" for d in rows[0].differences]
    solved = f"A question is solved {comparison.criterion.solved}."
    efforts = _build_effort_table(comparison)
    parts = [
        Part("Questions", [formatting.write_split(comparison, context)]),
        Part("Measures", table=[["measure", *comparison.policies], *metrics]),
        Part(
            "Differences",
            formatting.write_gain(comparison) if comparison.deployment else [],
            table=[["difference", *heads], *differences],
        ),
        Part("Tests", table=_build_tests_table(comparison)),
        Part("Parts of the questions", table=_build_strata_table(comparison.primary.label, comparison.strata, comparison)),
        Part("Recall by task", table=_build_strata_table("recall", comparison.recalls, comparison)),
        Part("Effort", [solved] if efforts else [], efforts),
        Part("Later turns", table=_build_turns_table(comparison)),
        Part("Headroom", table=_build_headroom_table(comparison)),
        Part("Settings", formatting.write_settings(comparison, context)),
        Part("Incidents", formatting.write_incidents(comparison)),
        Part("Verdict", formatting.write_verdict(comparison)),
    ]
    return [part for part in parts if part.sentences or part.table]


def _build_tests_table(comparison: Comparison) -> Cells:
    """The differences on which the verdict may rest, what would have been detected, and what they come to."""
    rows = [
        [
            write_label(row),
            d.reference,
            formatting.write_finding(d, comparison.criterion),
            write_difference(d, row),
            write_number(d.detectable, row.unit),
        ]
        for row in comparison.rows
        for d in row.differences
        if d.finding
    ]
    return rows and [["test", f"{comparison.subject} against", "finding", "difference", "detectable"], *rows]


def _build_strata_table(measured: str, strata: Sequence[Row], comparison: Comparison) -> Cells:
    rows = [
        [write_label(row), str(max(metric.n for metric in row.metrics.values()))]
        + [write_number(metric.value, row.unit) for metric in row.metrics.values()]
        + [write_difference(difference, row) for difference in row.differences]
        for row in strata
    ]
    heads = [measured.lower(), "questions", *comparison.policies, f"{comparison.subject} - {comparison.baseline}"]
    return rows and [heads, *rows]


def _build_effort_table(comparison: Comparison) -> Cells:
    """The ratios that have a value for some policy."""
    columns = [map(formatting.write_ratio, effort.list_ratios()) for effort in comparison.efforts.values()]
    rows = [list(row) for row in zip(EFFORT_LABELS.values(), *columns, strict=True) if set(row[1:]) != {formatting.NO_VALUE}]
    return rows and [["effort", *comparison.efforts], *rows]


def _build_turns_table(comparison: Comparison) -> Cells:
    rows = [
        [f"{policy} {row.turn}", write_number(row.num_pages, Unit.COUNT)]
        + [write_number(share, Unit.SHARE) for share in (row.success, row.first_search, row.question)]
        + [formatting.write_cell(row.difference, row, Unit.SHARE)]
        for policy, turns in comparison.turns.items()
        for row in turns
    ]
    heads = ["success within turn", "pages", "%", "first search, as many pages %", "the question, as many pages %"]
    return rows and [[*heads, "% - the question"], *rows]


def _build_headroom_table(comparison: Comparison) -> Cells:
    """Table of what an oracle gains that knows for each question whose first search is best: a bound for choosing among them."""
    rows: Cells = []
    for room in comparison.room:
        values = [write_number(value, room.unit) for value in (room.best, room.oracle, room.gain)]
        rows.append([f"{room.label}{' %' if room.unit.is_percent else ''}", room.best_policy, *values])
    return [["first search", "best policy", "its value", "oracle (best for each question)", "headroom (upper bound)"], *rows]


def format_console(parts: Sequence[Part]) -> str:
    """Sentences wrapped and tables aligned, without headings: a table's first cell says what it is of."""
    sections: list[str] = []
    for part in parts:
        sections.append("\n".join(textwrap.fill(sentence, _WIDTH) for sentence in part.sentences))
        widths = [max(map(len, column)) for column in zip(*part.table, strict=True)]
        rows = [*part.table[:1], *[["-" * width for width in widths]][: len(part.table)], *part.table[1:]]
        sections.append("\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows))
    return "\n\n".join(section for section in sections if section) + "\n"


def format_markdown(comparison: Comparison, context: ReportContext) -> str:
    """The same for an issue or a model card, the verdict first."""
    *parts, verdict = build_parts(comparison, context)
    return render_page("evaluate/report/report.md.j2", title=context.title, parts=[verdict, *parts], line=_to_line) + "\n"


def _to_line(text: str) -> Markup:
    """Names of runs and policies are free text: none may end a line or a cell, or be read as markup, a link or a picture."""
    return Markup(_MARKS.sub(r"\\\g<0>", " ".join(text.split())))


def write_report(
    path: Path, comparison: Comparison, examples: Examples, context: ReportContext, thumbnails: ThumbnailStore
) -> None:
    """Write `report.html`, whole or not at all. All text from models and files is escaped. Raises ArtifactError: the file cannot
    be written."""
    write_text(path, build_report(comparison, examples, context, draw_pictures(examples, thumbnails)))


def build_report(
    comparison: Comparison, examples: Examples, context: ReportContext, pictures: Mapping[Evidence | str, str]
) -> str:
    """The report as HTML with its figures inline: no script, no external resource."""
    questions, *parts, verdict = build_parts(comparison, context)
    return render_page(
        "evaluate/report/report.html.j2",
        comparison=comparison,
        context=context,
        questions=questions,
        verdict=verdict,
        parts=parts,
        figures=_draw_figures(comparison, context),
        examples=examples,
        picture=lambda shown: pictures.get(shown.key if isinstance(shown, ShownImage) else to_page(shown)),
        config=json.dumps(dict(context.config), indent=2, ensure_ascii=False, default=str),
        number=write_number,
        interval=formatting.write_interval,
    )


def _draw_figures(comparison: Comparison, context: ReportContext) -> list[tuple[str, str, Markup]]:
    """Heading, note and drawing of each figure."""
    drawings = [
        ("Hits of the first search", f"With {comparison.confidence:.0%} intervals.", draw_hit_bars(comparison)),
        (
            f"From {comparison.baseline} to {comparison.subject}",
            "Questions by rank in the first search; better below the diagonal (green), worse above it (red).",
            draw_rank_changes(comparison),
        ),
    ]
    if context.training_curve:
        drawings.append(("Training", "Loss over training steps.", draw_training_curve(context.training_curve)))
    # The drawings escape their own text (policy names) while they are written as XML.
    return [(heading, note, Markup(svg)) for heading, note, svg in drawings]
