"""Outputs of stages as Polars frames."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from drag_ray import schemas
from drag_ray.evaluate import evaluation_folder
from drag_ray.evaluate.question_result import to_line
from drag_ray.transcripts.listing import list_files


def read_trajectories(path: str | Path) -> pl.DataFrame:
    """The trajectories below a run, a stage or a folder of rollouts, a row each.

    Raises:
        DataError: there are none, or a file is not readable.
        DamageError: they are of a finished stage, and not what it has written.

    Examples:
        >>> drag_ray.read_trajectories("runs/small").filter(error="").is_empty()
        False
    """
    tables = [schemas.read_table(file, schemas.TRAJECTORIES) for file in list_files(Path(path))]
    return pl.concat([pl.DataFrame(table) for table in tables]).sort("id", pl.col("provenance").struct.field("policy"))


def read_results(path: str | Path) -> pl.DataFrame:
    """The results of each policy of an evaluation on each question, a row each.

    Args:
        path: the folder of the evaluation, or a run.

    Raises:
        ArtifactError: the evaluation has not finished.
        DamageError: its files are not what was written.

    Examples:
        >>> results = drag_ray.read_results("runs/small")
        >>> results["policy"].unique().sort().to_list()
        ['base', 'question', 'tuned']
    """
    rows = [
        {"policy": name, **to_line(result)}
        for name, results in evaluation_folder.read_results(Path(path)).items()
        for result in results
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def to_measures(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """A row for each measure and policy: measure, label, policy, value, low, high (the interval), n (questions), unit,
    higher_is_better.

    Args:
        rows: of a comparison, as JSON.
    """
    flat = [
        {"measure": row["name"], "label": row["label"], "policy": policy, **metric}
        | {"unit": str(row["unit"]), "higher_is_better": row["higher_is_better"]}
        for row in rows
        for policy, metric in row["metrics"].items()
    ]
    return pl.DataFrame(flat, infer_schema_length=None)
