"""The last look at training rows: a model must not be shown what serving would not show it.

Screening sets rows aside: those whose conversation tells the rank of the evidence, and those whose opening, which is
written before any search, names an evidence file or an answer of its question.  Checking reads the written rows once more and
stops at any leak: an input must be word for word what the policy was given when it searched, and a question must be on
the side of its file.
"""

from collections import defaultdict

import polars as pl

from drag_ray.errors import DataError
from drag_ray.format.layout import Layout
from drag_ray.format.tables import ScoredPart

_TOLD_RANK = r"(?i)\b(?:found|evidence|ground truth|gold|relevant)\b[\w ]{0,30}\bat rank [1-9]"
# Shorter answers ("5", "no") are in any instruction by chance.
_MIN_TELLING_CHARS = 4


def find_leaks(trajectories: pl.DataFrame) -> pl.DataFrame:
    """For each trajectory whether its opening is telling, and where a message first tells the rank of the evidence.

    Returns:
        trajectory_id, has_telling_opening, and told_at: a position in its messages, null if none tells a rank.
    """
    message = pl.element().struct
    # What the model itself wrote is no leak.
    tells = (message.field("role") != "assistant") & message.field("content").str.contains(_TOLD_RANK)
    flags = pl.col("messages").list.eval(tells)
    return trajectories.select(
        "trajectory_id",
        has_telling_opening=pl.col("trajectory_id").is_in(find_telling_openings(trajectories)),
        told_at=pl.when(flags.list.any()).then(flags.list.arg_max()),
    )


def find_telling_openings(trajectories: pl.DataFrame) -> list[str]:
    """Ids of the trajectories whose opening names an evidence file or an answer of their own question.

    The question's own words may do so, and so may words that another question has in its opening as well: those are
    instructions, not hints.
    """
    opening = pl.col("messages").list.head(pl.col("num_opening_messages"))
    openings = (
        trajectories.select(
            *("question_id", "question", "answers", "trajectory_id"),
            files=pl.col("evidence").list.eval(pl.element().struct.field("file")),
            opening=opening.list.eval(pl.element().struct.field("content")).list.join("\n"),
        )
        .group_by("question_id", "opening", maintain_order=True)
        .agg(pl.col("question", "answers", "files").first(), pl.col("trajectory_id"))
    )
    questions_of = defaultdict(set)
    suspects = []
    for row in openings.iter_rows(named=True):
        text = (row["opening"] or "").replace(row["question"], "").casefold()
        questions_of[text].add(row["question_id"])
        if any(len(item) >= _MIN_TELLING_CHARS and item.casefold() in text for item in (*row["files"], *row["answers"])):
            suspects.append((row["trajectory_id"], text))
    return [name for names, text in suspects if len(questions_of[text]) == 1 for name in names]


def screen_rows(rows: pl.DataFrame, leaks: pl.DataFrame) -> pl.DataFrame:
    """The rows whose input tells nothing about the evidence.

    Args:
        rows: training rows with `trajectory_id` and either `prompt` or `messages`.
        leaks: as of `find_leaks`, with the trajectories of the rows among them.
    """
    num_shown = pl.col(_input_column(rows)).list.len()
    is_clean = ~pl.col("has_telling_opening") & (pl.col("told_at").is_null() | (pl.col("told_at") >= num_shown))
    marked = rows.join(leaks, on="trajectory_id", how="left", maintain_order="left")
    return marked.filter(is_clean).select(rows.columns)


def check_rows(rows: pl.DataFrame, part: ScoredPart, sides: pl.DataFrame, side: str, layout: Layout, place: str) -> None:
    """Check rows as they were read back from a file.

    Args:
        rows: consecutive rows of one file, all from `part`.
        part: what they were made from.
        sides: question_id and side of each question.
        side: the side of the file.
        layout: how the rows were laid out.
        place: the file, for messages.

    Raises:
        DataError: a row shows the model what the policy was not shown, tells the rank, evidence or answer, or is on a wrong side.
    """
    column = _input_column(rows)
    numbered = (
        rows.with_row_index("row")
        .join(part.trajectories.select("trajectory_id", "messages"), on="trajectory_id", how="left", suffix="_recorded")
        .join(sides, on="question_id", how="left")
    )
    recorded = pl.col("messages_recorded" if column == "messages" else "messages").list.head(pl.col(column).list.len())
    if layout.has_images:
        expected = layout.show_inputs(numbered.select(recorded).to_series())
        differs = pl.struct(column, "images") != pl.lit(expected)
    else:
        differs = pl.col(column) != recorded
    checks = {
        "its input is not what the policy was shown": differs.fill_null(True),
        f"its question is not on the {side} side": pl.col("side").ne_missing(side),
    }
    for complaint, is_wrong in checks.items():
        _require_none(numbered.filter(is_wrong), complaint, place)
    clean = screen_rows(rows, find_leaks(part.trajectories))
    if clean.height != rows.height:
        told = numbered.join(clean.select("trajectory_id"), on="trajectory_id", how="anti")
        _require_none(told, "its input tells the rank, a file or the answer of its question", place)


def _require_none(wrong: pl.DataFrame, complaint: str, place: str) -> None:
    if not wrong.is_empty():
        first = wrong.row(0, named=True)
        raise DataError(
            f"{place}: row {first['row'] + 1} of trajectory {first['trajectory_id']!r} leaks: {complaint} ({wrong.height} such "
            "rows). Nothing should be trained on this file. Run the process and format stages again, and report this if it "
            "happens again."
        )


def _input_column(rows: pl.DataFrame) -> str:
    return "prompt" if "prompt" in rows.columns else "messages"
