"""Rollouts with a hint and what baselines proposed, from the records to the rows: learned, and no sample of the policy's own."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from factories import asked_at, build_question, build_search, build_trajectory, write_trajectories
from scripted_engine import ScriptedEngine
from small_index import open_index

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.rollout import Rollouts, write_hint
from drag_ray.agent.task import Policy
from drag_ray.engine.generate import Request
from drag_ray.format.config import FormatConfig
from drag_ray.format.layout import Layout
from drag_ray.format.row_parts import FormatJob, FormattedPart, format_part
from drag_ray.format.rows import OF_TURNS, sft_context, sft_query
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_code
from drag_ray.pipeline.stages import STAGES
from drag_ray.process.statistics import count_part
from drag_ray.process.trajectory_parts import part_name
from drag_ray.rollout.plan import build_plan
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity
from drag_ray.types import Evidence, Page, Trajectory

PAGES = [
    Page("a.pdf", 1, 1, "fuel and oil are stored behind the seat"),
    Page("b.pdf", 2, 2, "gyroplane limits: the rotor blade must be balanced with a plumb line before each flight of the season"),
    Page("b.pdf", 1, 2, "propeller propeller propeller"),
]
HINT = write_hint(PAGES[1])
PASSAGE = "balanced with a plumb line before each flight"
QUESTIONS = [
    build_question(id="hard", question="What is done to it first?", evidence=(Evidence("b.pdf", 2),)),
    build_question(id="easy", question="Where does the petrol go?", evidence=(Evidence("a.pdf", 1),)),
]
HINTED = {"hinted": True, "id": "q1/hinted"}


def reply(request: Request) -> str:
    """Guesses without a hint; with one it speaks of it at length, and finds the page."""
    turn = sum(message["role"] == "assistant" for message in request.messages)
    if turn == 2:
        return "<answer>none</answer>"
    if HINT in request.messages[1]["content"]:
        return f"<think>The hint says: {HINT}</think><search>{'gyroplane season' if turn else PASSAGE}</search>"
    return f"<think>I try.</think><search>{('propeller', 'fuel')[turn % 2]}</search>"


@pytest.fixture(scope="module")
def trajectories(tmp_path_factory: pytest.TempPathFactory) -> list[Trajectory]:
    searcher = open_index(tmp_path_factory.mktemp("hinted"), PAGES)
    config = AgentConfig(top_k=1, max_iterations=3)
    rollouts = Rollouts(
        config,
        Policy("model"),
        ScriptedEngine(reply),
        SearchEnvironment(searcher, 1, 10),
        "index",
    )
    plan = build_plan(QUESTIONS, ("default",), 2, run_seed=0, hinted_samples=1)

    async def run_all() -> list[Trajectory]:
        needed = [task for task in plan if not (task.hinted and task.question.id == "easy")]
        return [await rollouts.run(task) for task in needed]

    return asyncio.run(run_all())


def format_all(run_dir: Path, records: list[Trajectory], **options) -> dict[str, pl.DataFrame]:
    source = run_dir / "collect" / "trajectories"
    write_trajectories(source / "part-0.parquet", records)
    config = RunConfig(run_dir=run_dir, format=FormatConfig(validation_fraction=0.0, **options))
    with StageFolder(run_dir / "process", Identity("process", {}, {})) as folder:
        run_code(STAGES["process"], config, folder)
    with StageFolder(run_dir / "format", Identity("format", {}, {})) as folder:
        run_code(STAGES["format"], config, folder)
    return {name: pl.read_parquet(run_dir / "format" / name / "train.parquet") for name in OF_TURNS}


def test_the_script_is_what_this_file_is_about(trajectories: list[Trajectory]) -> None:
    [hinted] = [trajectory for trajectory in trajectories if trajectory.provenance.hinted]
    assert [turn.action.value for turn in hinted.turns] == ["invalid", "search", "answer"]
    assert hinted.turns[1].ranking.rank_score == 1.0
    assert PASSAGE in hinted.messages  # in what the model wrote
    assert all(turn.ranking.evidence_rank is None for trajectory in trajectories[:2] for turn in trajectory.turns)
    assert all(trajectory.question_search.rank is None for trajectory in trajectories)


def test_no_word_of_a_hint_reaches_a_row_of_any_format(tmp_path: Path, trajectories: list[Trajectory]) -> None:
    rows = format_all(tmp_path, trajectories, exports=("llama_factory", "ms_swift"))
    written = [path for path in (tmp_path / "format").rglob("*") if path.suffix in (".jsonl", ".json", ".md")]
    assert {path.parent.name for path in written} >= set(OF_TURNS)
    texts = [path.read_text() for path in written] + [json.dumps(table.to_dicts()) for table in rows.values()]
    for telling in ("The hint says", "This page answers", PASSAGE, PASSAGE.upper()):
        assert not [text for text in texts if telling in text]
    assert any("gyroplane season" in text for text in texts)


def test_only_queries_are_learned_of_hinted_rollouts(tmp_path: Path, trajectories: list[Trajectory]) -> None:
    rows = format_all(tmp_path, trajectories)
    learned = [{"role": "assistant", "content": get_protocol("tags").render_search("gyroplane season")}]
    own_messages = json.loads(trajectories[0].messages)
    hard = {name: table.filter(pl.col("question_id") == "hard").to_dicts() for name, table in rows.items()}
    assert [(row["prompt"], row["completion"]) for row in hard["sft_query"]] == [(own_messages[:2], learned)]
    assert [(row["prompt"], row["completion"]) for row in hard["sft_context"]] == [(own_messages[:4], learned)]
    for name in ("sft_trajectory", "rejection", "dpo"):
        assert hard[name] == []
    for name in ("reward", "rl_steps"):
        assert hard[name]
        assert not [row for row in hard[name] if row["trajectory_id"].endswith("/hinted")]


def test_hinted_queries_can_be_left_out(tmp_path: Path, trajectories: list[Trajectory]) -> None:
    rows = format_all(tmp_path, trajectories, hinted=False)
    assert "gyroplane season" not in json.dumps([table.to_dicts() for table in rows.values()])
    assert set(rows["sft_query"]["question_id"]) == {"easy"}


def test_hinted_rollouts_count_on_their_own(process) -> None:
    part = process(
        build_trajectory(build_search("fails"), build_search("fails")),
        build_trajectory(build_search("fails 2"), sample_index=1),
        build_trajectory(build_search("finds", 1), **HINTED),
    )
    counts = count_part(part.turns, part.trajectories)
    assert (counts["trajectories"], counts["valid"], counts["questions_with_success"]) == (2, 0, 0)
    assert (counts["hinted"], counts["hinted_valid"], counts["hinted_questions"]) == (1, 1, 1)
    assert (counts["turns"], counts["searches"], counts["usable_wins"]) == (3, 3, 0)
    assert (counts["distinct_successful_queries"], counts["preference_pairs"]) == (0, 0)


def test_a_hinted_or_proposed_query_never_makes_an_own_one_a_duplicate(process) -> None:
    part = process(build_trajectory(build_search("same", 1), **HINTED), build_trajectory(build_search("same", 1), sample_index=1))
    assert part.turns.select("hinted", "drop_reason").rows() == [(False, ""), (True, "duplicate")]
    assert sft_query.build_rows(part, FormatConfig())["trajectory_id"].to_list() == ["q1-1"]
    assert sft_context.build_rows(part, FormatConfig()).is_empty()
    part = process(
        build_trajectory(build_search("same", 1), id="q1/rm3", baseline="rm3"),
        build_trajectory(build_search("same", 1), sample_index=1),
    )
    assert part.turns.select("baseline", "drop_reason").rows() == [("", ""), ("rm3", "duplicate")]


COMPARED = {"sft_query", "sft_context", "dpo", "reward"}


@pytest.fixture
def job(process, tmp_path: Path) -> FormatJob:
    """The policy never beats the question, a baseline does."""
    process(
        build_trajectory(build_search("own", 5), build_search("again", 4), **asked_at(2)),
        build_trajectory(build_search("other", 4), sample_index=1, **asked_at(2)),
        build_trajectory(build_search("theirs", 1), id="q1/rm3", baseline="rm3", **asked_at(2)),
    )
    sides = tmp_path / "questions.parquet"
    pl.DataFrame({"question_id": [build_question().id], "side": ["train"]}).write_parquet(sides)
    return FormatJob(tmp_path, sides, FormatConfig(), Layout())


def run(job: FormatJob, **options: Any) -> FormattedPart:
    return format_part(replace(job, config=FormatConfig(**options)), f"{part_name(0)}.parquet")


def list_formats(part: FormattedPart) -> set[str]:
    """The formats with a row that says what the baseline wrote."""
    return {name for name in OF_TURNS if "theirs" in str(part.rows[name, "train"].table.to_pylist())}


def test_only_formats_of_single_queries_take_what_was_proposed_and_it_can_be_left_out(job: FormatJob) -> None:
    part = run(job)
    assert list_formats(part) == COMPARED
    assert (part.num_searches, part.num_targets) == (4, 1)
    steps = part.rows["rl_steps", "train"].table
    assert sorted(steps["trajectory_id"].to_pylist()) == ["q1-0", "q1-0", "q1-1"]
    part = run(job, proposed=False)
    assert list_formats(part) == set()
    assert (part.num_searches, part.num_targets) == (3, 0)
