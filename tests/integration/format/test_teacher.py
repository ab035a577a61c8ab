"""Passages scored by a teacher in Ray's actors, as the format stage does it."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from embedding_models import write_cross_encoder
from factories import build_page, build_question, build_search, build_trajectory, write_trajectories
from small_index import write_index

from drag_ray import schemas
from drag_ray.engine.encoders.reranker import load_reranker
from drag_ray.errors import ConfigError
from drag_ray.format.config import FormatConfig
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_code
from drag_ray.pipeline.stages import STAGES
from drag_ray.search.config import RerankConfig
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity
from drag_ray.types import Evidence

pytestmark = pytest.mark.usefixtures("local_ray")
THINGS = ("rotor", "fuel", "pump", "wing", "spar", "oil")


def run_stages(run_dir: Path, teacher: Path) -> dict:
    pages = [build_page(file="m.pdf", page_number=number, text=f"{thing} speed") for number, thing in enumerate(THINGS, 1)]
    write_index(run_dir / "index", pages, [])
    asked = [
        build_question(id=f"q{number}", question=f"{thing} speed", evidence=(Evidence("m.pdf", number),))
        for number, thing in enumerate(THINGS, 1)
    ]
    unlabelled = [
        build_question(id=f"u{number}", question=f"{thing} load speed", evidence=()) for number, thing in enumerate(THINGS)
    ]
    questions = [replace(question, split="train") for question in (*asked, *unlabelled)]
    pq.write_table(schemas.to_table(questions, schemas.QUESTIONS), run_dir / "index" / "questions.parquet")
    rollouts = [build_trajectory(build_search("a"), question=question) for question in asked]
    write_trajectories(run_dir / "collect" / "trajectories" / "part-0.parquet", rollouts)
    options = {"formats": ("relevance",), "relevance_pages": 2, "validation_fraction": 0.2, "exports": ("ms_swift",)}
    config = RunConfig(run_dir=run_dir, format=FormatConfig.model_validate({**options, "teacher": {"model": str(teacher)}}))
    for stage in ("process", "format"):
        with StageFolder(run_dir / stage, Identity(stage, config.take(STAGES[stage].sections).dump(), {})) as folder:
            counts = run_code(STAGES[stage], config, folder)
            folder.finish(counts)
    return counts


def test_each_passage_has_the_score_of_the_teacher_and_questions_without_evidence_have_rows(tmp_path: Path) -> None:
    teacher = write_cross_encoder(tmp_path / "teacher")
    counts = run_stages(tmp_path, teacher)
    folder = tmp_path / "format" / "relevance"
    rows = pl.concat([pl.read_parquet(folder / f"{side}.parquet") for side in ("train", "validation")])
    reranker = load_reranker(RerankConfig(model=str(teacher)))
    expected = [reranker.score(row["question"], [row["passage"]])[0] for row in rows.iter_rows(named=True)]
    assert rows["score"].to_list() == pytest.approx(expected, abs=1e-4)
    lines = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    assert lines == pq.read_table(folder / "train.parquet").to_pylist()

    without = rows.filter(pl.col("question_id").str.starts_with("u"))
    validation = pl.read_parquet(folder / "validation.parquet")
    assert validation["question_id"].str.starts_with("q").all()
    assert without["is_evidence"].null_count() == without.height == 3 * len(THINGS)
    assert rows["is_evidence"].sum() == len(THINGS)
    judged = rows.filter(pl.col("is_evidence").is_not_null())
    best = judged.sort("score").group_by("question_id").last()
    agrees = best["is_evidence"].sum()
    assert {name: counts[f"teacher_{name}"] for name in ("labelled", "agrees", "unlabelled", "undecided")} == {
        "labelled": len(THINGS),
        "agrees": agrees,
        "unlabelled": len(THINGS),
        "undecided": 0,
    }
    exported = (tmp_path / "format" / "exports" / "ms_swift" / "relevance_train.jsonl").read_text()
    assert "load" not in exported  # nobody says whether those pages answer


def test_a_teacher_that_cannot_be_read_is_named_by_its_option(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"format\.teacher\.model '.*gone'"):
        run_stages(tmp_path, tmp_path / "gone")
