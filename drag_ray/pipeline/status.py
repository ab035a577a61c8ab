"""The status of a run, by what lies in its folder: it is read alone, wherever the stages run, and no lock is taken."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drag_ray.errors import ArtifactError, DamageError
from drag_ray.rollout import journal
from drag_ray.rollout.failures import read_failures
from drag_ray.storage.artifacts import IDENTITY_NAME, PREVIOUS_DIR_NAME, is_begun, read_manifest
from drag_ray.storage.file_access import list_folder


@dataclass(frozen=True)
class StageStatus:
    """A stage of a run.

    Attributes:
        address: where in the run it is.
        state: `finished`, `in part` (it can be read, and something is left to try), `unfinished` (it runs, or was stopped), or
            `damaged` (of its manifest alone; `drag-ray verify` looks at the files).
        changed_s: seconds since it finished, or since something was written last.
        duration_s: seconds that its last start took; None of an unfinished one.
        counts: the figures of its summary line; of an unfinished one, rollouts that are on the disk and tries that failed.
    """

    address: str
    state: str
    changed_s: float
    duration_s: float | None
    counts: dict[str, Any]


def read_status(run_dir: Path) -> list[StageStatus]:
    """The stages of a run in the order in which something was last written. Raises ArtifactError where the folder is no run with
    a stage that was begun, or cannot be read."""
    now = time.time()
    found = [_read_stage(stage_dir, run_dir, now) for stage_dir in _walk_begun(run_dir)]
    if not found:
        raise ArtifactError(f"{run_dir}: no stage was started there. Give a run's folder.")
    return sorted(found, key=lambda status: -status.changed_s)


def format_status(stages: list[StageStatus]) -> str:
    """A line for each stage, and below it one for each of its figures."""
    return "\n".join(
        line for status in stages for line in (f"{status.address}: {_describe(status)}", *_list_figures(status.counts))
    )


def format_json(stages: list[StageStatus]) -> str:
    """The same for programs."""
    return json.dumps([vars(status) for status in stages], indent=2, default=str)


def _describe(status: StageStatus) -> str:
    took = f" in {_format_s(status.duration_s)}" if status.duration_s is not None else ""
    when = "last written" if status.state == "unfinished" else "ended"
    return f"{status.state}{took}, {when} {_format_s(status.changed_s)} ago"


def _list_figures(counts: dict[str, Any]) -> list[str]:
    """Names and values in two columns, numbers to the right; what there is nothing of to tell is left out."""
    texts = {
        name: f"{value:,}" if isinstance(value, int | float) else str(value)
        for name, value in counts.items()
        if value is not None
    }
    name_width = max(map(len, texts), default=0)
    width = max((len(text) for name, text in texts.items() if isinstance(counts[name], int | float)), default=0)
    return [f"  {name:<{name_width}}  {text:>{width}}" for name, text in texts.items()]


def _format_s(seconds: float) -> str:
    units = ((86_400, "d"), (3_600, "h"), (60, "min"))
    return next((f"{seconds / size:.1f} {unit}" for size, unit in units if seconds >= size), f"{seconds:.0f} s")


def _walk_begun(folder: Path) -> Iterator[Path]:
    """The stages below a folder, those that were set aside left out."""
    for path in list_folder(folder):
        if path.is_dir() and not path.name.startswith((".", PREVIOUS_DIR_NAME)):
            if is_begun(path):
                yield path
            else:
                yield from _walk_begun(path)


def _read_stage(stage_dir: Path, run_dir: Path, now: float) -> StageStatus:
    address = stage_dir.relative_to(run_dir).as_posix()
    changed_s = max(0.0, now - _find_last_write(stage_dir))
    try:
        manifest = read_manifest(stage_dir)
    except DamageError:
        return StageStatus(address, "damaged", changed_s, None, {})
    if manifest is None:
        return StageStatus(address, "unfinished", changed_s, None, _count_rollouts(stage_dir))
    state = "in part" if manifest.counts.get("unfinished") or manifest.counts.get("set_aside") else "finished"
    figures = manifest.counts | {f"machines_{name}": value for name, value in manifest.spent.items()}
    return StageStatus(address, state, changed_s, manifest.duration_s, figures)


def _find_last_write(stage_dir: Path) -> float:
    """The time of the last write, in the folder itself or in one in it, in seconds of the clock."""
    places = [stage_dir, stage_dir / IDENTITY_NAME, *(path for path in list_folder(stage_dir) if not path.name.startswith("."))]
    return max(path.stat().st_mtime for path in places if path.exists())


def _count_rollouts(stage_dir: Path) -> dict[str, Any]:
    counts = {"rollouts": len(journal.read_finished_ids(stage_dir)), "failed_rollouts": len(read_failures(stage_dir))}
    return {name: number for name, number in counts.items() if number}
