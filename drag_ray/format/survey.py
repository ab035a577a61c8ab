"""What has to be known of all parts before any of them is formatted."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.format.tables import read_table
from drag_ray.process.parts import TRAJECTORIES_DIR_NAME
from drag_ray.types import Evidence, Question

_COLUMNS = ("question_id", "question", "evidence", "group", "protocol", "has_images")


@dataclass(frozen=True)
class Survey:
    """The questions of a set of trajectories, and what its rows need."""

    questions: list[Question]
    has_tools: bool
    has_images: bool


def survey_parts(process_dir: Path, parts: Sequence[str]) -> Survey:
    """Read what is needed of each part in turn."""
    questions: list[Question] = []
    protocols: set[str] = set()
    has_images = False
    for name in parts:
        table = read_table(process_dir / TRAJECTORIES_DIR_NAME / name, list(_COLUMNS))
        protocols.update(table["protocol"].unique())
        has_images = has_images or bool(table["has_images"].any())
        for row in table.unique("question_id", keep="first", maintain_order=True).iter_rows(named=True):
            evidence = tuple(Evidence(**page) for page in row["evidence"])
            questions.append(Question(row["question_id"], row["question"], evidence, group=row["group"]))
    return Survey(questions, any(get_protocol(name).tools for name in protocols), has_images)
