"""The process stage: trajectories -> scored turns, their summary and the statistics."""

import logging
import math
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drag_ray.cluster.metrics import open_stage_recorder
from drag_ray.cluster.tasks import run_tasks
from drag_ray.corpus.image_store import ImageStore
from drag_ray.errors import DataError
from drag_ray.process.config import ProcessConfig, ProcessSections
from drag_ray.process.judging import judge_rollouts
from drag_ray.process.statistics import compute_statistics, format_statistics
from drag_ray.process.trajectories import TRAIN_SPLIT, FileSize, check_files, check_settings, read_records
from drag_ray.process.trajectory_parts import deal_out, part_name, process_part, read_dealt
from drag_ray.rollout.folder import IMAGES_DIR_NAME
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage.artifacts import write_json

_logger = logging.getLogger(__name__)

_DEALT_DIR_NAME = "dealt"
PART_BYTES = 16 * 2**20
"""Of conversations in a process's memory at once, about; a larger set is divided into parts by question."""


def run(sections: ProcessSections, inputs: Inputs, folder: StageFolder) -> dict[str, Any]:
    """Score the searches of the training trajectories and print what they came to.

    Reads `trajectories/*.parquet` of the collect stage; writes `turns/part-*.parquet` (a row a turn),
    `trajectories/part-*.parquet` (a row a trajectory), `statistics.json`, and where a judge is asked `judge/judgements.jsonl`. A
    large set is dealt out to parts by question, which Ray works on side by side; memory does not grow with their number, but
    for what is judged.

    Returns:
        The counts of the statistics, without the distributions, and what a judge has cost.

    Raises:
        DataError: the trajectories cannot be read, do not belong together, or none of them can be trained on.
        BudgetError: what the judge's replies may cost is spent; started again, the stage asks for what is left.
        TooManyFailuresError: too many requests to the judge failed; verdicts so far are kept.
        ConfigError: the judge's engine cannot be made.
    """
    source = inputs["collect"] / "trajectories"
    sizes = check_files(source)
    if not sections.process.allow_mixed:
        check_settings(list(sizes))
    stage_dir = folder.path.resolve()
    cost = judge_rollouts(list(sizes), sections.process, stage_dir) if sections.process.judge.enabled else 0.0
    counts = _process(sizes, sections.process, stage_dir)
    if not counts["trajectories"]:
        raise DataError(
            f"{source}: no trajectory to train on among {sum(size.num_records for size in sizes.values())} records "
            f"({counts['failed_rollouts']} failed, {counts['other_split']} outside the split {TRAIN_SPLIT!r}, "
            f"{counts['malformed']} malformed, {counts['unjudged']} without a verdict). Collect with questions whose split is "
            f"{TRAIN_SPLIT!r}: python jobs/collect.py"
        )
    ImageStore(folder.path / IMAGES_DIR_NAME).take_over(inputs["collect"] / IMAGES_DIR_NAME)
    statistics = compute_statistics(counts)
    write_json(folder.path / "statistics.json", statistics)
    _logger.info(format_statistics(statistics))
    figures = {name: value for name, value in statistics.items() if not isinstance(value, dict)}
    return figures | ({"cost": cost} if cost else {})


def _process(sizes: Mapping[Path, FileSize], config: ProcessConfig, folder: Path) -> Counter[Any]:
    num_parts = math.ceil(sum(size.num_bytes for size in sizes.values()) / PART_BYTES)
    if num_parts <= 1:
        return process_part(read_records(list(sizes), config.read_depth), 0, config, folder)
    dealt_dir = folder / _DEALT_DIR_NAME
    shutil.rmtree(dealt_dir, ignore_errors=True)
    batches = _cut_batches(sizes, PART_BYTES)
    for _ in run_tasks(deal_out, [(batch, num_parts, dealt_dir, config.read_depth) for batch in batches], folder):
        pass
    parts = [part for part in range(num_parts) if (dealt_dir / part_name(part)).exists()]
    counts: Counter[Any] = Counter()
    recorder = open_stage_recorder(folder)
    processed = run_tasks(_process_dealt, [(dealt_dir, part, config, folder) for part in parts], folder)
    for num_done, counts_of_part in enumerate(processed, start=1):
        counts.update(counts_of_part)
        recorder.set_progress("parts", num_done, len(parts))
    shutil.rmtree(dealt_dir)
    return counts


def _process_dealt(dealt_dir: Path, part: int, config: ProcessConfig, folder: Path) -> Counter[Any]:
    return process_part(read_dealt(dealt_dir / part_name(part)), part, config, folder)


def _cut_batches(sizes: Mapping[Path, FileSize], num_bytes: int) -> list[list[Path]]:
    """Consecutive files that hold about `num_bytes` of conversations together."""
    batches: list[list[Path]] = [[]]
    filled = 0
    for path, size in sizes.items():
        if filled >= num_bytes:
            batches.append([])
            filled = 0
        batches[-1].append(path)
        filled += size.num_bytes
    return batches
