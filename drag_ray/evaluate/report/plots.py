"""The figures of the report as inline SVG.

Colours are drawn as placeholders and replaced by CSS variables, so that one figure serves light and dark pages;
text stays text, in the font of the page.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from drag_ray.evaluate.comparison import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK = "#010203"
_GRID = "#020304"
_BETTER, _WORSE = "#09090a", "#0a090a"
SERIES_COLOURS = ("#030405", "#040506", "#050607", "#060708", "#070809", "#08090a")
_CSS_COLOURS = {_INK: "var(--ink)", _GRID: "var(--grid)", _BETTER: "var(--good)", _WORSE: "var(--bad)"} | {
    colour: f"var(--series-{number})" for number, colour in enumerate(SERIES_COLOURS, start=1)
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
}


def draw_hit_bars(comparison: Comparison) -> str:
    """Hit@k of the first search for each policy, with intervals."""
    rows = [row for row in comparison.rows if row.name.startswith("hit_at_")]

    def draw(axes: "Axes") -> None:
        width = 0.8 / len(comparison.policies)
        for index, policy in enumerate(comparison.policies):
            metrics = [row.metrics[policy] for row in rows]
            heights = [100 * (metric.value or 0) for metric in metrics]
            below = [height - 100 * (metric.low or 0) for height, metric in zip(heights, metrics, strict=True)]
            above = [100 * (metric.high or 0) - height for height, metric in zip(heights, metrics, strict=True)]
            # A percentile interval need not contain the mean to the last digit; matplotlib refuses negative bars.
            errors = [[max(0.0, size) for size in below], [max(0.0, size) for size in above]]
            places = [k + (index - (len(comparison.policies) - 1) / 2) * width for k in range(len(rows))]
            axes.bar(places, heights, width * 0.92, color=_colour(index), label=policy)
            axes.errorbar(places, heights, yerr=errors, fmt="none", ecolor=_INK, elinewidth=1.2, capsize=3)
        axes.set_xticks(range(len(rows)), [row.label for row in rows])
        axes.set_ylim(0, 105)
        axes.set_ylabel("questions (%)")
        _put_legend(axes, len(comparison.policies))

    described = "; ".join(
        f"{policy}: " + ", ".join(f"{row.label} {100 * (row.metrics[policy].value or 0):.1f}%" for row in rows)
        for policy in comparison.policies
    )
    return render_figure(draw, f"Bar chart of Hit@k of the first search. {described}.")


def draw_rank_changes(comparison: Comparison) -> str:
    """A grid of question counts: rank under the baseline against rank under the subject."""
    buckets = build_rank_buckets(comparison.depth)
    labels = [label for label, _, _ in buckets] + ["absent"]
    before, after = (comparison.first_search_ranks[name] for name in (comparison.baseline, comparison.subject))
    grid = [[0] * len(labels) for _ in labels]
    for old, new in zip(before, after, strict=True):
        grid[_find_bucket(old, buckets)][_find_bucket(new, buckets)] += 1

    def draw(axes: "Axes") -> None:
        _draw_cells(axes, grid)
        axes.set_xticks(range(len(labels)), labels)
        axes.set_yticks(range(len(labels)), labels)
        axes.set_xlim(-0.5, len(labels) - 0.5)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.grid(False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel(f"rank with {comparison.subject}")
        axes.set_ylabel(f"rank with {comparison.baseline}")

    better, worse = (sum(grid[y][x] for y in range(len(grid)) for x in range(len(grid)) if (x - y) * s > 0) for s in (-1, 1))
    return render_figure(
        draw,
        f"Grid of question counts by rank of the evidence under {comparison.baseline} and under {comparison.subject}: "
        f"{better} questions moved to a better group of ranks, {worse} to a worse one.",
        height=4.2,
    )


def _draw_cells(axes: "Axes", grid: Sequence[Sequence[int]]) -> None:
    most = max(max(row) for row in grid)
    for y, row in enumerate(grid):
        for x, count in enumerate(row):
            colour = _GRID if x == y else _BETTER if x < y else _WORSE
            axes.bar(x, 0.94, 0.94, y - 0.47, color=colour, alpha=0.12 + 0.5 * count / most if count else 0.05)
            if count:
                axes.text(x, y, str(count), ha="center", va="center", color=_INK)


def draw_training_curve(curve: Sequence[Mapping[str, float | None]]) -> str:
    """Training and evaluation loss over steps; points without a value are left out."""
    series = {
        label: [(point["step"], point[key]) for point in curve if point.get(key) is not None]
        for key, label in (("loss", "training"), ("eval_loss", "held out"))
    }

    def draw(axes: "Axes") -> None:
        for index, (label, points) in enumerate(series.items()):
            if points:
                steps, losses = zip(*points, strict=True)
                axes.plot(steps, losses, color=_colour(index), label=label, marker="o", markersize=3, linewidth=1.8)
        axes.set_xlabel("training step")
        axes.set_ylabel("loss")
        _put_legend(axes, len(series))

    described = "; ".join(
        f"{label} loss from {points[0][1]:.3f} to {points[-1][1]:.3f}" for label, points in series.items() if points
    )
    return render_figure(draw, f"Line chart of the loss over training steps. {described}.")


def build_rank_buckets(depth: int) -> list[tuple[str, int, int]]:
    """Groups of ranks to `depth` as (label, first rank, last rank): 1, 2, 3, 4-5, 6-10, 11-20, ..., doubling."""
    edges = [1, 2, 3, 5, 10]
    while edges[-1] < depth:
        edges.append(2 * edges[-1])
    buckets, start = [], 1
    for edge in edges:
        end = min(edge, depth)
        if start <= end:
            buckets.append((str(start) if start == end else f"{start}-{end}", start, end))
        start = edge + 1
    return buckets


def _find_bucket(rank: int | None, buckets: Sequence[tuple[str, int, int]]) -> int:
    if rank is None:
        return len(buckets)
    return next(position for position, (_, first, last) in enumerate(buckets) if first <= rank <= last)


def _colour(index: int) -> str:
    return SERIES_COLOURS[index % len(SERIES_COLOURS)]


def _put_legend(axes: "Axes", num_entries: int) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=min(num_entries, 3), borderaxespad=0.2)


def render_figure(draw: Callable[["Axes"], None], description: str, height: float = 3.4) -> str:
    """A figure as inline SVG.

    Args:
        draw: puts what is shown on the axes, in `SERIES_COLOURS`.
        description: what is seen, for screen readers.
        height: in inches; the width is 6.2.
    """
    import matplotlib
    from matplotlib.figure import Figure

    # The salt keeps the ids of several figures on one page apart and the file the same from run to run.
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": description}):
        figure = Figure(figsize=(6.2, height), layout="constrained")
        axes = figure.subplots()
        axes.grid(True, axis="y", linewidth=0.6)
        draw(axes)
        stream = io.StringIO()
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(stream, format="svg", transparent=True, metadata=no_metadata)
    return _to_inline(stream.getvalue(), description)


def _to_inline(svg: str, description: str) -> str:
    """The <svg> element alone, described for screen readers, as wide as its place, in the colours of the page."""
    from markupsafe import escape

    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'<svg([^>]*?) width="[^"]*"', r"<svg\1", svg, count=1)
    svg = re.sub(r'<svg([^>]*?) height="[^"]*"', r"<svg\1", svg, count=1)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1)
    for placeholder, colour in _CSS_COLOURS.items():
        svg = svg.replace(placeholder, colour)
    return svg
