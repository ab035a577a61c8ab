"""The format stage: scored searches -> training rows in the columns that TRL reads."""

from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pyarrow as pa

from drag_ray.artifacts import StageFolder, write_jsonl, write_parquet
from drag_ray.errors import DataError
from drag_ray.format import dpo, reward, sft_context, sft_query, sft_trajectory
from drag_ray.format.config import FormatConfig, FormatName
from drag_ray.format.leaks import screen_rows
from drag_ray.format.selection import is_target
from drag_ray.format.split import choose_validation_questions

BUILDERS: dict[FormatName, ModuleType] = {
    "sft_query": sft_query,
    "sft_trajectory": sft_trajectory,
    "sft_context": sft_context,
    "dpo": dpo,
    "reward": reward,
}


def run(config: Any, folder: StageFolder) -> dict[str, Any]:
    """Write `<format>/train` and `<format>/validation`, each as `.jsonl` and `.parquet`, and print how many rows.

    Returns:
        For each format the rows of both sides and those set aside, under keys like `sft_query_train`.

    Raises:
        DataError: the process stage's tables are missing, or no query is good enough to train towards.
    """
    options: FormatConfig = config.format
    searches, trajectories = (_read(config.stage_dir("process") / f"{name}.parquet") for name in ("searches", "trajectories"))
    if searches.filter(is_target(options)).is_empty():
        raise DataError(
            f"{config.stage_dir('process')}: none of {searches.height} searches found evidence with a rank score of "
            f"{options.min_rank_score} or more, so there is nothing to train towards. Collect more samples a question, at a "
            "higher temperature or with a larger top_k, score with a larger process.top_k, or lower format.min_rank_score."
        )
    evidence = _read_evidence(trajectories)
    validation = choose_validation_questions(evidence, options.validation_fraction, options.seed)
    counts: dict[str, Any] = {"questions": len(evidence), "validation_questions": len(validation)}
    print(f"{'rows':<16}{'train':>9}{'validation':>12}{'set aside':>11}")
    for name in options.formats:
        rows = BUILDERS[name].build_rows(searches, trajectories, options)
        clean, num_set_aside = screen_rows(rows, trajectories)
        num_train, num_validation = _write_sides(folder.path / name, clean, BUILDERS[name].SCHEMA, validation)
        print(f"{name:<16}{num_train:>9}{num_validation:>12}{num_set_aside:>11}")
        counts[f"{name}_train"] = num_train
        counts[f"{name}_validation"] = num_validation
        counts[f"{name}_set_aside"] = num_set_aside
    return counts


def _write_sides(folder: Path, rows: list[dict[str, Any]], schema: pa.Schema, validation: frozenset[str]) -> tuple[int, int]:
    sides = {
        "train": [row for row in rows if row["question_id"] not in validation],
        "validation": [row for row in rows if row["question_id"] in validation],
    }
    for side, side_rows in sides.items():
        write_jsonl(folder / f"{side}.jsonl", side_rows)
        write_parquet(folder / f"{side}.parquet", pa.Table.from_pylist(side_rows, schema=schema))
    return len(sides["train"]), len(sides["validation"])


def _read_evidence(trajectories: pl.DataFrame) -> dict[str, list[tuple[str, int]]]:
    """The (file, page_number) of the evidence pages of each question id."""
    questions = trajectories.unique("question_id", keep="first", maintain_order=True)
    return {
        question_id: [(page["file"], page["page_number"]) for page in pages]
        for question_id, pages in questions.select("question_id", "evidence").iter_rows()
    }


def _read(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path, glob=False)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. Run: python jobs/process.py") from None
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: not a readable Parquet file ({error}). Run: python jobs/process.py") from error
