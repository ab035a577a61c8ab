"""The report of an evaluation: one HTML file that needs nothing beside itself."""

import json
from collections.abc import Mapping
from pathlib import Path

from markupsafe import Markup

from drag_ray.agent.shown_images import ShownImage
from drag_ray.evaluate.caption import write_caption, write_incidents, write_split
from drag_ray.evaluate.comparison import Comparison
from drag_ray.evaluate.context import ReportContext
from drag_ray.evaluate.examples import EXAMPLE_RULE, Examples, draw_pictures
from drag_ray.evaluate.notation import write_finding, write_interval, write_number, write_test
from drag_ray.evaluate.outline import build_effort_table, build_recalls_table, build_strata_table, build_tests_table
from drag_ray.evaluate.plots import draw_hit_bars, draw_rank_changes, draw_rank_distribution, draw_training_curve
from drag_ray.evaluate.verdict import write_room, write_verdict
from drag_ray.storage.artifacts import write_text
from drag_ray.transcripts.thumbnails import ThumbnailStore
from drag_ray.transcripts.transcript import to_page
from drag_ray.transcripts.webpage import render_page
from drag_ray.types import Evidence


def write_report(path: Path, comparison: Comparison, examples: Examples, context: ReportContext, book: ThumbnailStore) -> None:
    """Write `report.html`, whole or not at all. All text from models and files is escaped.

    Args:
        book: where pictures are.

    Raises:
        ArtifactError: the file cannot be written.
    """
    write_text(path, build_report(comparison, examples, context, draw_pictures(examples, book)))


def build_report(
    comparison: Comparison, examples: Examples, context: ReportContext, pictures: Mapping[Evidence | str, str]
) -> str:
    """The report as HTML with its figures inline: no script, no external resource.

    Args:
        pictures: of pages, and of images by their keys, as data URIs.
    """
    return render_page(
        "evaluate/report.html.j2",
        comparison=comparison,
        context=context,
        split=write_split(comparison, context),
        verdict=write_verdict(comparison),
        room=write_room(comparison),
        criterion=comparison.criterion,
        primary=comparison.primary,
        caption=write_caption(comparison, context),
        incidents=write_incidents(comparison),
        figures=_draw_figures(comparison, context),
        tests=build_tests_table(comparison),
        strata=build_strata_table(comparison),
        recalls=build_recalls_table(comparison),
        efforts=build_effort_table(comparison),
        examples=examples,
        example_rule=EXAMPLE_RULE,
        picture=lambda shown: pictures.get(shown.key if isinstance(shown, ShownImage) else to_page(shown)),
        config=json.dumps(dict(context.config), indent=2, ensure_ascii=False, default=str),
        number=write_number,
        interval=write_interval,
        test=write_test,
        finding=lambda difference: write_finding(difference, comparison.criterion),
    )


def _draw_figures(comparison: Comparison, context: ReportContext) -> list[tuple[str, str, Markup]]:
    """Heading, note and drawing of each figure."""
    interval = f"{comparison.confidence:.0%} bootstrap intervals"
    drawings = [
        ("Hits of the first search", f"Questions with evidence among the first k pages, {interval}.", draw_hit_bars(comparison)),
        (
            "Rank of the evidence",
            f"In the first search of each question; absent means not within depth {comparison.depth}.",
            draw_rank_distribution(comparison),
        ),
        (
            f"From {comparison.baseline} to {comparison.subject}",
            "Questions by the rank of the evidence in the first search; better below the diagonal (green), worse above it (red).",
            draw_rank_changes(comparison),
        ),
    ]
    if context.training_curve:
        drawings.append(("Training", "Loss over training steps.", draw_training_curve(context.training_curve)))
    # The drawings escape their own text (policy names) while they are written as XML.
    return [(heading, note, Markup(svg)) for heading, note, svg in drawings]
