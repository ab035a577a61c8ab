"""Scores of a teacher: a reader of pages says of each passage of the rows how well it answers its question.

Small rankers learn them (Hofstätter et al., 2020, https://arxiv.org/abs/2010.02666). The rows are read where the teacher reads,
and only their scores come back, so that memory does not grow with the passages.
"""

import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray.cluster.metrics import show_progress
from drag_ray.cluster.tasks import ItemStep, Step, map_items
from drag_ray.format.config import FormatConfig, TeacherConfig
from drag_ray.format.row_parts import RowFiles, encode_rows
from drag_ray.search.config import RerankConfig
from drag_ray.storage.file_access import reading

if TYPE_CHECKING:
    from drag_ray.engine.encoders.pair_writer import Pairs, PairWriter

_logger = logging.getLogger(__name__)

_ROWS_PER_ITEM = 64
SCORE = pa.field("score", pa.float64())


class _PassageReader(RerankConfig):
    """A teacher that reads a passage at once, as a part of a page."""

    section: ClassVar[str] = TeacherConfig.section


class _Slice(NamedTuple):
    """Consecutive rows of a file."""

    path: Path
    start: int
    num_rows: int


def score_rows(files: Sequence[RowFiles], config: FormatConfig, stage_dir: Path) -> dict[str, int]:
    """Write the teacher's scores into the column `score` of files, and say how far they agree with the labels.

    Returns:
        `teacher_labelled`, the questions with evidence and other pages; `teacher_agrees`, those of them whose best page is
        evidence; `teacher_unlabelled`, the questions without evidence; `teacher_undecided`, those whose pages are scored alike.

    Raises:
        ConfigError: the teacher cannot be read, makes infinite numbers, or no node sees the folder.
        ArtifactError: no space is left, or a file cannot be read.
    """
    from drag_ray.engine.encoders.reranker import PairsReader

    reader = _PassageReader(**config.teacher.model_dump(), page_chars=config.relevance_chars)
    slices = [
        _Slice(file.parquet_path, start, min(_ROWS_PER_ITEM, file.num_rows - start))
        for file in files
        for start in range(0, file.num_rows, _ROWS_PER_ITEM)
    ]
    scores = {file.parquet_path: [0.0] * file.num_rows for file in files}
    total = sum(file.num_rows for file in files)
    _logger.info(f"teacher: {reader.model} reads {total:,} passages")
    steps = [Step(_PassagesWriter, (reader,)), Step(PairsReader, (reader,))]
    with show_progress(stage_dir, "scoring", "passages", "scored_passages", total) as advance:
        for place, made in map_items(steps, slices, reader.device, stage_dir):
            path, start, num_rows = slices[place]
            scores[path][start : start + num_rows] = [score for _, [score] in made]
            advance(num_rows)
    for file in files:
        _add_scores(file, scores[file.parquet_path])
    return _compare(config.teacher.model, files)


def _add_scores(file: RowFiles, scores: Sequence[float]) -> None:
    """Write a file again with its scores, each row where it was."""
    path = file.parquet_path
    schema = pq.read_schema(path).append(SCORE)
    with RowFiles(path.parent, path.stem, schema) as scored, reading(path), pq.ParquetFile(path) as written:
        for number, (part, place) in enumerate(file.parts.items()):
            own = pa.array(scores[place.start : place.stop], SCORE.type)
            scored.write(encode_rows(written.read_row_group(number).append_column(SCORE, own)), part)


def _compare(model: str, files: Sequence[RowFiles]) -> dict[str, int]:
    columns = ["question_id", "is_evidence", SCORE.name]
    rows = pl.concat([pl.read_parquet(file.parquet_path, columns=columns, glob=False) for file in files])
    score, is_evidence = pl.col(SCORE.name), pl.col("is_evidence")
    questions = rows.group_by("question_id").agg(
        labelled=is_evidence.n_unique() == 2,
        agrees=score.filter(is_evidence).max() > score.filter(~is_evidence).max(),
        unlabelled=is_evidence.is_null().all(),
        undecided=score.n_unique() == 1,
    )
    counts = {f"teacher_{name}": int(questions[name].sum()) for name in questions.columns[1:]}
    _logger.info(
        f"teacher: {model} has evidence first for {counts['teacher_agrees']:,} of {counts['teacher_labelled']:,} questions with "
        f"evidence and other pages; {counts['teacher_unlabelled']:,} have no evidence, and all pages of "
        f"{counts['teacher_undecided']:,} are scored alike"
    )
    return counts


class _PassagesWriter(ItemStep):
    """Writes the tokens of the passages of a slice, each with its question."""

    def __init__(self, config: RerankConfig) -> None:
        self._config = config

    def make(self, made: _Slice) -> list[tuple[None, "Pairs"]]:
        with reading(made.path):
            rows = pl.scan_parquet(made.path, glob=False).select("question", "passage").slice(made.start, made.num_rows).collect()
        return [(None, self._writer.write(question, [passage])) for question, passage in rows.iter_rows()]

    @cached_property
    def _writer(self) -> "PairWriter":
        from drag_ray.engine.encoders.pair_writer import load_pair_writer
        from drag_ray.engine.encoders.reranker_files import find_files

        return load_pair_writer(find_files(self._config))
