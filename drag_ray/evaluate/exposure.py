"""Exposure of test questions: the evaluations of a run that have asked them already."""

from collections.abc import Collection, Iterator
from pathlib import Path

from drag_ray.errors import DamageError
from drag_ray.evaluate.config import TEST
from drag_ray.evaluate.outcome import COMPARISON_NAME, QUESTIONS_NAME
from drag_ray.storage.artifacts import MANIFEST_NAME, read_manifest

MANY = 3
"""After so many evaluations of the same questions choices are likely to have been made by them."""
_DEPTH = 5
"""Folders between a run and the manifest of an evaluation that was set aside: rounds/2/evaluate/_previous/NAME."""


def count_exposures(stage_dir: Path, address: str, questions: Collection[str]) -> int:
    """The finished evaluations of a run, those in `_previous` too, that asked any of these as test questions.

    Args:
        stage_dir: the folder of the evaluation that is running, which does not count.
        address: where in its run that folder is.
        questions: their texts.
    """
    own, asked = stage_dir.resolve(), set(questions)
    earlier = (folder for folder in _list_evaluations(own.parents[address.count("/")]) if folder != own)
    return sum(not asked.isdisjoint(_read_test_questions(folder)) for folder in earlier)


def _list_evaluations(run_dir: Path) -> Iterator[Path]:
    for depth in range(1, _DEPTH + 1):
        for path in run_dir.glob("/".join(["*"] * depth + [COMPARISON_NAME])):
            if (path.parent / MANIFEST_NAME).is_file():
                yield path.parent


def _read_test_questions(folder: Path) -> list[str]:
    """The texts of what was asked; none where it was no test, or cannot be read any more."""
    import pyarrow.parquet as pq

    try:
        manifest = read_manifest(folder)
        if manifest is None or manifest.origin["config"]["evaluate"]["split"] != TEST:
            return []
        return pq.read_table(folder / QUESTIONS_NAME, columns=["question"])["question"].to_pylist()
    except (DamageError, KeyError, OSError):
        return []
