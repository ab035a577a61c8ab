import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml
from factories import build_answer, build_page, build_question, build_search, build_trajectory, change, write_trajectories
from small_index import write_index

from drag_ray import schemas
from drag_ray.corpus.near_duplicates import write_near_duplicates
from drag_ray.errors import DataError
from drag_ray.format.config import FormatConfig
from drag_ray.format.rows import OF_TURNS, sft_context
from drag_ray.format.tables import ScoredPart
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_code
from drag_ray.pipeline.stages import STAGES
from drag_ray.process.config import ProcessSections
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity, read_manifest
from drag_ray.types import Evidence, Trajectory


def run_both(run_dir: Path, records: list[Trajectory], **options) -> dict:
    source = run_dir / "collect" / "trajectories"
    write_trajectories(source / "part-0.parquet", records)
    config = RunConfig(run_dir=run_dir, format=FormatConfig(**options))
    collected = read_manifest(run_dir / "collect")
    read = {"collect": collected.outcome_fingerprint} if collected else {}
    identity = Identity("process", config.take(ProcessSections).dump(), read, reads=dict.fromkeys(read, "collect"))
    with StageFolder(run_dir / "process", identity) as folder:
        folder.finish(run_code(STAGES["process"], config, folder))
    with StageFolder(run_dir / "format", Identity("format", {}, {})) as folder:
        return run_code(STAGES["format"], config, folder)


def build_records() -> list[Trajectory]:
    records = []
    for number in range(10):
        question = build_question(id=f"q{number}", question=f"Question {number}?", evidence=(Evidence("m.pdf", number + 1),))
        records.append(build_trajectory(build_search("wide"), build_search("exact", 1), question=question))
        records.append(build_trajectory(build_search("good", 2), question=question, sample_index=1))
    return records


def test_every_format_is_written_twice_alike_with_both_sides_apart_and_found_through_the_card(tmp_path: Path) -> None:
    counts = run_both(tmp_path, build_records(), validation_fraction=0.2)
    assert counts["validation_questions"] == 2
    rows = {"sft_query": 2, "sft_trajectory": 2, "sft_context": 1, "rejection": 2, "dpo": 1, "reward": 2, "rl_steps": 3}
    for name, rows_per_question in rows.items():
        train, validation = (pl.read_parquet(tmp_path / "format" / name / f"{side}.parquet") for side in ("train", "validation"))
        assert (train.height, validation.height) == (8 * rows_per_question, 2 * rows_per_question)
        assert not set(train["question_id"]) & set(validation["question_id"])
        assert (counts[f"{name}_train"], counts[f"{name}_validation"]) == (train.height, validation.height)
    for name in OF_TURNS:
        lines = (tmp_path / "format" / name / "train.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == pq.read_table(tmp_path / "format" / name / "train.parquet").to_pylist()
    card = (tmp_path / "format" / "README.md").read_text()
    listed = yaml.safe_load(card.split("---")[1])["configs"]
    assert [config["config_name"] for config in listed] == list(OF_TURNS)
    for config in listed:
        assert [item["split"] for item in config["data_files"]] == ["train", "validation"]
        assert all((tmp_path / "format" / item["path"]).exists() for item in config["data_files"])
    assert "| `sft_query` |" in card


def test_rows_of_pages_need_no_query_that_wins_and_are_checked_as_they_were_written(tmp_path: Path) -> None:
    pages = [
        build_page(file="m.pdf", page_number=number, text=f"Question {number - 1} and question 3.") for number in range(1, 11)
    ]
    write_index(tmp_path / "index", pages, [])
    asked = [
        build_question(id=f"q{number}", question=f"Question {number}?", evidence=(Evidence("m.pdf", number + 1),))
        for number in range(10)
    ]
    lost = [build_trajectory(build_search("wide"), question=question) for question in asked]
    counts = run_both(tmp_path, lost, formats=("relevance",), validation_fraction=0.2, relevance_pages=2)
    train, validation = (pl.read_parquet(tmp_path / "format/relevance" / f"{side}.parquet") for side in ("train", "validation"))
    assert (counts["relevance_train"], counts["relevance_validation"]) == (train.height, validation.height) == (8 * 3, 2 * 3)
    assert train["is_evidence"].sum() == 8
    assert not set(train["question_id"]) & set(validation["question_id"])


def test_rows_of_pages_without_an_index_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no rows for format\.formats relevance: these trajectories came without the index"):
        run_both(tmp_path, build_records(), formats=("relevance",))


def test_images_are_hidden_as_they_were_in_the_collection(tmp_path: Path) -> None:
    trajectory = build_trajectory(build_search("a", 3), build_search("b", 2), build_search("c", 1))
    messages = json.loads(trajectory.messages)
    for place in (3, 5):
        messages[place]["content"] = [{"type": "image", "image": f"{place}.jpg"}]
    turns = (*trajectory.turns[:-1], change(trajectory.turns[-1], hidden_images=(0,)))
    record = replace(trajectory, turns=turns, messages=json.dumps(messages))
    run_both(tmp_path, [record], formats=("sft_trajectory",), validation_fraction=0)
    [row] = pq.read_table(tmp_path / "format" / "sft_trajectory" / "train.parquet").to_pylist()
    assert row["images"] == ["5.jpg"]


def test_only_the_chosen_formats_are_written(tmp_path: Path) -> None:
    run_both(tmp_path, build_records(), formats=("dpo",))
    assert [path.name for path in (tmp_path / "format").iterdir() if path.is_dir()] == ["dpo"]


def test_no_success_at_all_says_what_to_change(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none of 1 searches.*higher temperature"):
        run_both(tmp_path, [build_trajectory(build_search("a"))])


def test_what_helps_is_of_the_task(tmp_path: Path) -> None:
    order = build_trajectory(build_search("[2, 1]"), task="rerank", protocol="ranking")
    with pytest.raises(DataError, match=r"none of 1 orders.*collect\.teacher") as of_orders:
        run_both(tmp_path / "rerank", [order])
    with pytest.raises(DataError, match=r"none of 1 answers.*collect\.teacher") as of_answers:
        run_both(tmp_path / "answer", [build_trajectory(build_answer("fuel"), task="answer")])
    assert "collect.proposals" not in f"{of_orders.value} {of_answers.value}"


def test_missing_tables_say_which_job_to_run(tmp_path: Path) -> None:
    with (
        StageFolder(tmp_path / "format", Identity("format", {}, {})) as folder,
        pytest.raises(DataError, match=r"trajectories: no part-\*\.parquet.*jobs/process\.py"),
    ):
        run_code(STAGES["format"], RunConfig(run_dir=tmp_path), folder)


def test_questions_that_evaluation_asks_and_near_duplicates_are_withheld(tmp_path: Path) -> None:
    asked = [build_question(id="e1", question="Else?", evidence=(Evidence("m.pdf", 3),), split="test")]
    (tmp_path / "index").mkdir()
    pq.write_table(schemas.to_table(asked, schemas.QUESTIONS), tmp_path / "index" / "questions.parquet")
    records = build_records()
    unrelated = {page: [] for record in records for page in record.evidence}
    write_near_duplicates(tmp_path / "index", {**unrelated, Evidence("m.pdf", 3): [0], Evidence("m.pdf", 5): [0]})
    counts = run_both(tmp_path, records)
    assert counts["withheld_questions"] == 2
    sides = dict(pl.read_parquet(tmp_path / "format" / "questions.parquet").iter_rows())
    assert [name for name, side in sides.items() if side == "withheld"] == ["q2", "q4"]
    for path in (tmp_path / "format").glob("*/*.parquet"):
        assert not {"q2", "q4"} & set(pl.read_parquet(path)["question_id"])


def test_a_file_that_leaks_stops_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A builder that shows a later message than the policy had seen must not get its rows past the check."""
    honest = sft_context.FORMAT

    def tell(part: ScoredPart, config: FormatConfig) -> pl.DataFrame:
        hint = pl.struct(role=pl.lit("user"), content=pl.lit("It is on page 3 of m.pdf."))
        return honest.build_rows(part, config).with_columns(pl.concat_list("prompt", hint))

    monkeypatch.setattr(sft_context, "FORMAT", replace(honest, build_rows=tell))
    with pytest.raises(DataError, match=r"sft_context/train\.parquet: row 1 .* leaks"):
        run_both(tmp_path, build_records())
    assert not (tmp_path / "format" / "manifest.json").exists()


@pytest.mark.seconds
def test_other_trainers_get_files_of_their_own(tmp_path: Path) -> None:
    counts = run_both(tmp_path, build_records(), exports=("llama_factory", "ms_swift"))
    exports = tmp_path / "format" / "exports"
    for trainer in ("llama_factory", "ms_swift"):
        assert len((exports / trainer / "dpo_train.jsonl").read_text().splitlines()) == counts["dpo_train"]
    described = json.loads((exports / "llama_factory" / "dataset_info.json").read_text())
    assert "rl_steps_train" not in described
    assert all((exports / "llama_factory" / entry["file_name"]).stat().st_size for entry in described.values())
