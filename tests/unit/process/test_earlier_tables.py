"""Trajectories of the version before, whose fields were in no groups, are those of this one to whatever reads them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories import EVIDENCE, asked_at, build_answer, build_call, build_question, build_search, build_trajectory, build_turn

from drag_ray import schemas
from drag_ray.api.frames import read_trajectories
from drag_ray.evaluate.scoring import Terms, score_collection
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_code
from drag_ray.pipeline.stages import STAGES
from drag_ray.process.config import ProcessSections
from drag_ray.process.exchange import export_trajectories
from drag_ray.rollout import journal
from drag_ray.rollout.counts import count_files
from drag_ray.rollout.failures import read_failures
from drag_ray.rollout.journal import drop_rollouts_without_images
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity
from drag_ray.transcripts.listing import read_listing
from drag_ray.types import Trajectory

KEPT = Path(__file__).with_name("trajectories_10.parquet")
"""`build_collected()` as version 10 wrote it."""


def build_collected() -> list[Trajectory]:
    """Rollouts of every kind, with a value in every field."""
    rollouts: list[Trajectory] = []
    for number in range(6):
        asked: dict[str, Any] = {"question": build_question(id=f"q{number}", question=f"Question {number}?", group="g")}
        turns = (
            build_search("wide", completion_logprobs=(-0.5, -1.0), prompt_digest="d", hidden_images=(1,), hidden_messages=(2,)),
            build_call(tool_error="no file"),
            build_turn(error=""),
            build_search("exact", 1, partial_search=True),
            build_answer(citations=(EVIDENCE,)),
        )
        expanding: dict[str, Any] = {"query_mode": "expand", "question_weight": 0.5, "question_words": "key", **asked_at(4)}
        policy: dict[str, Any] = {"model": "m", "adapter": "a", "policy": "p", "preset": "high_temp", "tools": "[]"}
        rollouts += [
            build_trajectory(*turns, **asked, **expanding, **policy),
            build_trajectory(build_search("good", 2), sample_index=1, **asked, **expanding),
            build_trajectory(build_search("rm3", 3), id=f"q{number}/rm3", baseline="rm3", **asked, **asked_at(4)),
            build_trajectory(build_search("told", 1), id=f"q{number}/hinted", hinted=True, prompt_set=1, **asked, **asked_at(4)),
        ]
    return rollouts


def write_earlier(run_dir: Path) -> Path:
    """A run whose collection the version before wrote."""
    folder = run_dir / "collect" / "trajectories"
    folder.mkdir(parents=True)
    shutil.copyfile(KEPT, folder / f"part-{'0' * 12}-{artifacts.compute_file_fingerprint(KEPT)}.parquet")
    return run_dir


def write_now(run_dir: Path) -> Path:
    written = journal.Journal(run_dir / "collect", flush_s=1000)
    for rollout in build_collected():
        written.add(rollout)
    written.flush()
    return run_dir


def test_a_table_of_the_version_before_becomes_one_of_this() -> None:
    table = schemas.read_table(KEPT, schemas.TRAJECTORIES)
    assert table.equals(schemas.to_table(build_collected(), schemas.TRAJECTORIES))
    assert table.schema.metadata == schemas.TRAJECTORIES.metadata
    assert schemas.read_table(KEPT, schemas.TRAJECTORIES, ["id"]).column_names == ["id"]


def list_files(run_dir: Path) -> list[Path]:
    return journal.list_files(run_dir / "collect", "trajectories")


def export(run_dir: Path) -> str:
    export_trajectories(run_dir / "collect" / "trajectories", run_dir / "all.jsonl")
    return (run_dir / "all.jsonl").read_text()


def go_on(run_dir: Path) -> dict[str, Any]:
    """The collection goes on: a rollout is dropped, those of a policy are copied, and all is there."""
    collect_dir = run_dir / "collect"
    journal.begin_attempt(collect_dir)
    [path] = list_files(run_dir)
    journal.drop(path, ["q0-1"])
    journal.begin_attempt(run_dir / "other")
    journal.copy_policy(collect_dir, run_dir / "other", "p")
    return {
        **{
            name: journal.read_trajectories(folder).to_pylist()
            for name, folder in (("own", collect_dir), ("other", run_dir / "other"))
        },
        "again": drop_rollouts_without_images(collect_dir, ()),
        "successes": journal.read_successes(collect_dir),
    }


def fail(run_dir: Path) -> Any:
    shutil.move(run_dir / "collect" / "trajectories", run_dir / "collect" / "failures")
    return read_failures(run_dir / "collect")


@pytest.mark.parametrize(
    "read",
    [
        lambda run_dir: read_listing(run_dir).drop("path").to_dicts(),
        lambda run_dir: read_trajectories(run_dir).to_dicts(),
        lambda run_dir: count_files(list_files(run_dir)),
        lambda run_dir: score_collection(run_dir / "collect", Terms(top_k=2), num_resamples=50),
        *(export, go_on, fail),
    ],
)
def test_whatever_reads_trajectories_reads_the_same(read: Callable[[Path], Any], tmp_path: Path) -> None:
    assert read(write_earlier(tmp_path / "earlier")) == read(write_now(tmp_path / "now"))


def run_stages(run_dir: Path) -> dict[str, str]:
    config = RunConfig(run_dir=run_dir)
    for name in ("process", "format"):
        with StageFolder(run_dir / name, Identity(name, config.take(ProcessSections).dump(), {})) as folder:
            folder.finish(run_code(STAGES[name], config, folder))
    return {str(path.relative_to(run_dir)): path.read_text() for path in sorted(run_dir.glob("format/*/train.jsonl"))}


@pytest.mark.seconds
def test_what_follows_a_collection_runs_on_one_that_was_begun_by_the_version_before(tmp_path: Path) -> None:
    expected = run_stages(write_now(tmp_path / "now"))
    assert len(expected["format/sft_trajectory/train.jsonl"].splitlines()) > 5
    assert run_stages(write_earlier(tmp_path / "earlier")) == expected
    mixed = write_now(tmp_path / "mixed")
    [path] = list_files(mixed)
    journal.drop(path, [rollout.id for rollout in build_collected()[::2]])
    write_earlier(tmp_path / "copied")
    shutil.copy(list_files(tmp_path / "copied")[0], path.parent)
    assert run_stages(mixed) == expected  # each rollout once
