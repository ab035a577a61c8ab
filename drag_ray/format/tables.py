"""The tables of the process stage for some questions, as the builders of training rows read it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import polars as pl

from drag_ray.agent.degeneration import to_query_key
from drag_ray.agent.scores import rank_score
from drag_ray.agent.tasks import SEARCHING
from drag_ray.baselines.question import RawQuestion
from drag_ray.errors import DataError
from drag_ray.process.trajectory_parts import TRAJECTORIES_DIR_NAME, TURNS_DIR_NAME
from drag_ray.storage.file_access import list_folder, reading
from drag_ray.types import ActionKind, Question


@dataclass(frozen=True)
class ScoredPart:
    """All turns and trajectories of some questions, as `process.turns` makes them, or those of some sources (see `take`).

    `index_dir` is the folder of the index stage; None where trajectories came from elsewhere without one. `embed_dir` is that of
    the stage `embed`, where its vectors are searched.
    """

    turns: pl.DataFrame
    trajectories: pl.DataFrame
    index_dir: Path | None = None
    embed_dir: Path | None = None

    @classmethod
    def of_questions(cls, questions: Sequence[Question], index_dir: Path | None = None, embed_dir: Path | None = None) -> Self:
        """Questions without evidence, for which nobody has searched: what formats of pages read."""
        pages = pl.List(pl.Struct({"file": pl.String, "page_number": pl.Int64}))
        rows = [(question.id, question.question, [], SEARCHING[0]) for question in questions]
        columns = {"question_id": pl.String, "question": pl.String, "evidence": pages, "task": pl.String}
        return cls(
            pl.DataFrame(schema={"question_id": pl.String}),
            pl.DataFrame(rows, schema=columns, orient="row"),
            index_dir,
            embed_dir,
        )

    @cached_property
    def searches(self) -> pl.DataFrame:
        """The turns that search."""
        return self.turns.filter(pl.col("action") == ActionKind.SEARCH.value)

    @cached_property
    def candidates(self) -> pl.DataFrame:
        """The searches, and for each question that was searched the reply that asks for no more than it finds, with a gain of 0.

        That reply has the baseline `question`: in the mode `expand` it adds nothing, otherwise it repeats the question.
        """
        # A list of candidates has no reply that is the question.
        is_asked = (pl.col("step") == 1) & pl.col("knows_question") & pl.col("task").is_in(SEARCHING)
        openings = self.turns.filter(is_asked).unique(["question_id", "state"], keep="first", maintain_order=True)
        query = pl.when(pl.col("query_mode") == "expand").then(pl.lit("")).otherwise("question")
        asked = openings.with_columns(
            action=pl.lit(ActionKind.SEARCH.value),
            query=query,
            query_key=to_query_key(query),
            evidence_rank="question_rank",
            rank_score=rank_score(pl.col("question_rank"), pl.col("top_k")),
            found=(pl.col("question_rank") <= pl.col("top_k")).fill_null(False),
            gain=pl.lit(0.0),
            improvement=pl.lit(0.0),
            baseline=pl.lit(RawQuestion.name),
            **{name: pl.lit("") for name in ("reasoning", "reply", "drop_reason")},
            **{name: pl.lit(False) for name in ("has_error", "is_truncated", "is_late", "is_repeated", "hinted")},
        )
        return pl.concat([self.searches, asked], how="diagonal_relaxed").sort("question_id", maintain_order=True)

    @cached_property
    def own(self) -> "ScoredPart":
        """The part that the policy did by itself, without a hint."""
        return self.take(proposed=False, hinted=False)

    def take(self, *, proposed: bool, hinted: bool) -> "ScoredPart":
        """The part that the policy did, with what baselines proposed, and with what was found with a hint."""
        chosen = pl.lit(True)
        if not proposed:
            chosen &= pl.col("baseline") == ""
        if not hinted:
            chosen &= ~pl.col("hinted")
        return replace(self, turns=self.turns.filter(chosen), trajectories=self.trajectories.filter(chosen))

    def leave_out(self, question_ids: pl.DataFrame) -> "ScoredPart":
        """Without the questions of a table of question_id."""
        turns, trajectories = (
            table.join(question_ids, on="question_id", how="anti", maintain_order="left")
            for table in (self.turns, self.trajectories)
        )
        return replace(self, turns=turns, trajectories=trajectories)

    def add_conversations(self, rows: pl.DataFrame) -> pl.DataFrame:
        """`rows` with the columns messages, num_opening_messages and cumulative_effort of their trajectories."""
        columns = ("trajectory_id", "messages", "num_opening_messages", "cumulative_effort")
        return rows.join(self.trajectories.select(columns), on="trajectory_id", how="left", maintain_order="left")


def list_parts(process_dir: Path) -> list[str]:
    """The file names of the parts. Raises DataError where there is none, and ArtifactError where the folder cannot be listed."""
    names = [path.name for path in list_folder(process_dir / TRAJECTORIES_DIR_NAME, "*.parquet")]
    if not names:
        raise DataError(f"{process_dir / TRAJECTORIES_DIR_NAME}: no part-*.parquet. Run: python jobs/process.py")
    return names


def read_part(process_dir: Path, name: str, index_dir: Path | None = None, embed_dir: Path | None = None) -> ScoredPart:
    """The tables of one part, with the index that it was searched in. Raises ArtifactError where a file is missing or
    unreadable."""
    return ScoredPart(
        read_table(process_dir / TURNS_DIR_NAME / name),
        read_table(process_dir / TRAJECTORIES_DIR_NAME / name),
        index_dir,
        embed_dir,
    )


def read_table(path: Path, columns: list[str] | None = None) -> pl.DataFrame:
    """A table that the process stage wrote. Raises ArtifactError where the file is missing or unreadable."""
    with reading(path, "Run: python jobs/process.py"):
        return pl.read_parquet(path, columns=columns, glob=False)
