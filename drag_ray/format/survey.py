"""What has to be known of all parts before any of them is formatted."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from drag_ray.format.tables import read_table
from drag_ray.process.parts import TRAJECTORIES_DIR_NAME
from drag_ray.types import Evidence, Question

_COLUMNS = ("question_id", "question", "evidence", "group", "task", "tools", "has_images", "hidden")


@dataclass(frozen=True)
class Survey:
    """The questions of a set of trajectories, what was asked, and what its rows need."""

    questions: list[Question]
    tasks: set[str]
    has_tools: bool
    has_images: bool
    hides_text: bool


def survey_parts(process_dir: Path, parts: Sequence[str]) -> Survey:
    """Read what is needed of each part in turn."""
    questions: list[Question] = []
    tasks: set[str] = set()
    has_tools = has_images = hides_text = False
    for name in parts:
        table = read_table(process_dir / TRAJECTORIES_DIR_NAME / name, list(_COLUMNS))
        tasks.update(table["task"])
        has_tools = has_tools or bool((table["tools"] != "").any())
        has_images = has_images or bool(table["has_images"].any())
        hidden = pl.col("hidden").list.eval(pl.element().struct.field("hidden_messages").list.len() > 0).list.any()
        hides_text = hides_text or bool(table.select(hidden.any()).item())
        for row in table.unique("question_id", keep="first", maintain_order=True).iter_rows(named=True):
            evidence = tuple(Evidence(**page) for page in row["evidence"])
            questions.append(Question(row["question_id"], row["question"], evidence, group=row["group"]))
    return Survey(questions, tasks, has_tools, has_images, hides_text)
