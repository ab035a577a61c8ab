"""The last look at training rows: a model must not be shown what serving would not show it.

Screening sets rows aside: those whose conversation tells the rank of the evidence, and those whose opening, which is
written before any search, names an evidence file or an answer of its question.  Checking reads the written rows once more and
stops at any leak: an input must be word for word what the policy was given when it searched, and a question must be on
the side of its file.  A page must be called what it is: evidence of its question, or not.
"""

import polars as pl

from drag_ray.agent.tasks import ORDERING
from drag_ray.errors import DataError
from drag_ray.format.columns import get_input_column
from drag_ray.format.layout import Layout
from drag_ray.format.tables import ScoredPart
from drag_ray.search.normal_form import normalise

_PAGE_COLUMNS = ("file", "page_number", "is_evidence")
CHECKED_COLUMNS = frozenset({"prompt", "messages", "images", "question_id", "trajectory_id", *_PAGE_COLUMNS})
"""What of a row is looked at when it is checked."""

_TOLD_RANK = r"(?i)\b(?:found|evidence|ground truth|gold|relevant)\b[\w ]{0,30}\bat rank [1-9]"
# Shorter answers ("5", "no") are in any instruction by chance.
_MIN_TELLING_CHARS = 4


def find_leaks(trajectories: pl.DataFrame) -> pl.DataFrame:
    """For each trajectory whether its opening is telling, and where a message first tells the rank of the evidence. Returns
    trajectory_id, has_telling_opening, and told_at: a position in its messages, null if none tells a rank."""
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
    instructions, not hints. In the task `rerank` the candidates may too: the opening shows them, as it does when it is served.
    """
    is_order = pl.col("task").is_in(ORDERING)
    opening = pl.col("messages").list.head(pl.when(is_order).then(1).otherwise("num_opening_messages"))
    openings = (
        trajectories.select(
            *("question_id", "question", "answers", "trajectory_id"),
            files=pl.col("evidence").list.eval(pl.element().struct.field("file")),
            opening=opening.list.eval(pl.element().struct.field("content")).list.join("\n").fill_null(""),
        )
        .group_by("question_id", "opening", maintain_order=True)
        .agg(pl.col("question", "answers", "files").first(), pl.col("trajectory_id"))
    )
    asked = zip(openings["opening"], openings["question"], strict=True)
    openings = openings.with_columns(
        text=pl.Series([normalise(text.replace(question, "")).casefold() for text, question in asked])
    )
    secrets = openings.select(pl.concat_list("files", "answers")).to_series().to_list()
    told = [_tells(text, items) for text, items in zip(openings["text"], secrets, strict=True)]
    telling = openings.filter(pl.Series(told, dtype=pl.Boolean))
    num_questions = openings.join(telling, on="text", how="semi").group_by("text").agg(pl.col("question_id").n_unique())
    hints = telling.join(num_questions.filter(pl.col("question_id") == 1), on="text", how="semi")
    return hints.explode("trajectory_id")["trajectory_id"].to_list()


def _tells(text: str, secrets: list[str]) -> bool:
    return any(len(secret) >= _MIN_TELLING_CHARS and normalise(secret).casefold() in text for secret in secrets)


def screen_rows(rows: pl.DataFrame, leaks: pl.DataFrame) -> pl.DataFrame:
    """The rows whose input tells nothing about the evidence.

    Args:
        rows: training rows with `trajectory_id` and either `prompt` or `messages`.
        leaks: as of `find_leaks`, with the trajectories of the rows among them.
    """
    return _join_leaks(rows, leaks).filter(_is_clean(get_input_column(rows.columns))).select(rows.columns)


def _join_leaks(rows: pl.DataFrame, leaks: pl.DataFrame) -> pl.DataFrame:
    return rows.join(leaks, on="trajectory_id", how="left", maintain_order="left")


def _is_clean(column: str) -> pl.Expr:
    """False where a telling message is among those of `column`; false as well for a trajectory that nothing is known of."""
    shows_told = pl.col("told_at") < pl.col(column).list.len()
    return ~(pl.col("has_telling_opening") | shows_told.fill_null(False)).fill_null(True)


class RowChecker:
    """Checks rows as they were read back from files, against the part that they were made from."""

    def __init__(self, part: ScoredPart, sides: pl.DataFrame, layout: Layout) -> None:
        self._recorded = part.trajectories.select("trajectory_id", "hidden", recorded="messages")
        self._leaks = find_leaks(part.trajectories)
        self._sides = sides
        self._layout = layout

    def check(self, rows: pl.DataFrame, side: str, place: str, first_row: int = 0) -> None:
        """Check consecutive rows of one file. Raises DataError where a row shows the model what the policy was not shown, or
        tells it the rank, evidence or answer, or is on the wrong side.

        Args:
            side: the side of the file.
            place: the file, for messages.
            first_row: how many rows of the file come before these, for messages.
        """
        column = get_input_column(rows.columns)
        names = [column, "images"] if self._layout.has_images else [column]
        numbered = (
            rows.select("trajectory_id", "question_id", *names)
            .with_row_index("row", offset=first_row)
            .join(self._recorded, on="trajectory_id", how="left", maintain_order="left")
            .join(self._sides, on="question_id", how="left", maintain_order="left")
        )
        recorded = numbered.select(pl.col("recorded").list.head(pl.col(column).list.len())).to_series()
        if self._layout.has_images:
            # Structs whose fields have other names are never the same.
            shown = numbered.select(pl.struct(pl.col(column).alias("messages"), "images")).to_series()
            differs = shown != self._layout.show_inputs(recorded, numbered["hidden"])
            wrong = numbered.filter(differs.fill_null(True))
        else:
            if self._layout.hides_text:
                recorded = self._layout.show_inputs(recorded, numbered["hidden"])
            wrong = _filter_differing(numbered, numbered[column], recorded)
        _require_none(wrong, "its input is not what the policy was shown", place)
        _require_side(numbered, side, place)
        told = _join_leaks(numbered, self._leaks).filter(~_is_clean(column))
        _require_none(told, "its input tells the rank, a file or the answer of its question", place)


class PageChecker:
    """Checks rows of questions with pages, as they were read back from files; arguments as of `RowChecker`."""

    def __init__(self, part: ScoredPart, sides: pl.DataFrame) -> None:
        pages = part.trajectories.select("question_id", page="evidence").explode("page").drop_nulls().unique()
        self._evidence = pages.unnest("page").select("question_id", "file", "page_number", is_named=pl.lit(True))
        self._answered = self._evidence.select("question_id", is_of_others=pl.lit(False)).unique()
        self._sides = sides

    def check(self, rows: pl.DataFrame, side: str, place: str, first_row: int = 0) -> None:
        """Check consecutive rows of one file; arguments as of `RowChecker.check`. Raises DataError where a page is called
        evidence and is none, or the other way round, or one of both where the question has no evidence, or a row is on the wrong
        side."""
        numbered = (
            rows.select("question_id", *_PAGE_COLUMNS)
            .with_row_index("row", offset=first_row)
            .with_columns(pl.col("page_number").cast(self._evidence.schema["page_number"]))
            .join(self._evidence, on=["question_id", "file", "page_number"], how="left", maintain_order="left")
            .join(self._answered, on="question_id", how="left", maintain_order="left")
            .join(self._sides, on="question_id", how="left", maintain_order="left")
        )
        _require_side(numbered, side, place)
        wrong = numbered.filter(pl.col("is_evidence").ne_missing(pl.coalesce("is_named", "is_of_others")))
        _require_none(wrong, "its page is not what it says of the question's evidence", place)


def _require_side(rows: pl.DataFrame, side: str, place: str) -> None:
    _require_none(rows.filter(pl.col("side").ne_missing(side)), f"its question is not on the {side} side", place)


def _filter_differing(rows: pl.DataFrame, shown: pl.Series, recorded: pl.Series) -> pl.DataFrame:
    """The rows whose two lists of messages are not the same."""
    # To compare all messages in a row takes a third of the time, and only a leak needs to know where it is.
    same_lengths = shown.list.len().equals(recorded.list.len(), null_equal=False)
    if same_lengths and shown.explode().equals(recorded.explode()):
        return rows.clear()
    return rows.filter((shown != recorded).fill_null(True))


def _require_none(wrong: pl.DataFrame, complaint: str, place: str) -> None:
    if not wrong.is_empty():
        first = wrong.row(0, named=True)
        subject = f"trajectory {first['trajectory_id']!r}" if "trajectory_id" in first else f"question {first['question_id']!r}"
        raise DataError(
            f"{place}: row {first['row'] + 1} of {subject} leaks: {complaint} ({wrong.height} such "
            "rows). Nothing should be trained on this file. Run the process and format stages again, and report this if it "
            "happens again."
        )
