"""A judge in the process stage: whom it is asked about, what rewards become of its verdicts, and what of its failures."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from chat_server import Answer, ChatServer, serve_chat
from factories import (
    build_answer,
    build_call,
    build_question,
    build_search,
    build_trajectory,
    build_turn,
    change,
    write_trajectories,
)

from drag_ray.agent.judge import CRITERIA
from drag_ray.errors import BudgetError, TooManyFailuresError
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_code
from drag_ray.pipeline.stages import STAGES
from drag_ray.process import judging
from drag_ray.process.config import ProcessConfig
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity
from drag_ray.types import Trajectory, Turn

QUESTION = build_question(evidence=(), answers=("340 rpm",))
VERDICTS = {"about 340 a minute": "correct", "some hundred": "partial", "fast": "incorrect"}
MET = {"rotor": CRITERIA, "rotor\nlimit": ("relevant", "distinct")}


def build_answered(*turns: Turn, **fields: Any) -> Trajectory:
    return build_trajectory(*turns, **{"question": QUESTION, "task": "answer", "tools": "[]", **fields})


def read_case(body: dict[str, Any]) -> dict[str, Any]:
    request = body["messages"][0]["content"]
    return json.loads(request[request.index("{\n") : request.rindex("}\n\nReply") + 1])


def judge(body: dict[str, Any], number: int) -> Answer:
    """Says what is expected of the records of `collected`; of what it does not know nothing that is a verdict."""
    case = read_case(body)
    assert case["right_answers"] == ["340 rpm"]
    if "queries" in case:
        met = MET.get("\n".join(case["queries"]))
        return Answer("Hm." if met is None else json.dumps({name: name in met for name in CRITERIA}))
    verdict = VERDICTS.get(case["answer_to_judge"])
    return Answer(json.dumps({"verdict": verdict}) if verdict else "Who knows?")


@pytest.fixture
def collected(tmp_path: Path) -> Path:
    """A run with rollouts whose answers are right to the letter, right, right in part, wrong, not judged, missing and lost."""
    records = [
        build_answered(build_search("rotor"), build_answer("340 rpm")),
        build_answered(build_search("rotor"), build_turn(), build_search("limit"), build_answer("about 340 a minute")),
        build_answered(build_call(), build_answer("some hundred")),
        build_answered(build_search("fuel"), build_answer("fast")),
        build_answered(build_search("rotor"), build_answer("who can say")),
        build_answered(build_search("rotor"), build_call()),
        build_answered(build_search("rotor"), build_answer("fast"), error="engine died"),
        build_answered(build_answer("slow"), question=build_question(id="q2", answers=("340 rpm",), split="test")),
    ]
    records = [change(record, id=f"r{number}", sample_index=number) for number, record in enumerate(records)]
    source = tmp_path / "collect" / "trajectories"
    write_trajectories(source / "part-0.parquet", records[:4])
    write_trajectories(source / "part-1.parquet", records[4:])
    return tmp_path


def process(run_dir: Path, served: ChatServer, terms: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    endpoint = {"address": served.address, "max_retries": 0, **(terms or {})}
    engine = {"backend": "openai", "model": "judge", "endpoint": endpoint}
    settings = ProcessConfig.model_validate({"judge": {"enabled": True, "engine": engine}, **options})
    with StageFolder(run_dir / "process", Identity("process", {"reward": settings.reward}, {})) as folder:
        return run_code(STAGES["process"], RunConfig(run_dir=run_dir, process=settings), folder)


def read_rewards(run_dir: Path) -> dict[str, float]:
    rows = pl.read_parquet(run_dir / "process" / "trajectories" / "*.parquet")
    return dict(rows.select("trajectory_id", "reward").iter_rows())


@pytest.mark.seconds
def test_the_reward_of_opensearch_vl_has_the_judges_accuracy_and_quality_of_queries(collected: Path) -> None:
    with serve_chat(judge) as served:
        counts = process(collected, served, {"prompt_price": 1000.0, "completion_price": 10_000.0}, reward="opensearch_vl")
    asked = [read_case(body) for body in served.asked]
    assert sorted(case["answer_to_judge"] for case in asked if "queries" not in case) == sorted([*VERDICTS, "who can say"])
    assert sorted(case["queries"] for case in asked if "queries" in case) == [["fuel"], ["rotor"], ["rotor", "limit"]]
    # Format times (.8 accuracy + .2 queries); without searches, or a verdict on them, accuracy alone; 0 without an answer.
    rewards = {"r0": 1.0, "r1": 0.75 * (0.8 + 0.2 * 0.4), "r2": 0.5, "r3": 0.0, "r5": 0.0}
    assert read_rewards(collected) == pytest.approx(rewards)
    assert (counts["trajectories"], counts["judged_answers"], counts["unjudged"], counts["unjudged_queries"]) == (5, 3, 1, 1)
    assert counts["cost"] == pytest.approx(7 * (100 * 1000 + 10 * 10_000) / 1e6)


def test_answers_are_worth_what_the_judge_says_of_them(collected: Path) -> None:
    with serve_chat(judge) as served:
        counts = process(collected, served)
    assert not any("queries" in read_case(body) for body in served.asked)
    answers = pl.read_parquet(collected / "process" / "turns" / "*.parquet").filter(action="answer")
    assert dict(answers.select("trajectory_id", "reward").iter_rows()) == {"r0": 1.0, "r1": 1.0, "r2": 0.5, "r3": 0.0}
    assert dict(answers.select("trajectory_id", "found").iter_rows()) == {"r0": True, "r1": True, "r2": True, "r3": False}
    assert "cost" not in counts


def test_nothing_is_asked_twice_whether_the_stage_was_killed_or_has_other_options(collected: Path) -> None:
    with serve_chat(judge) as served:
        counts = process(collected, served)
        assert process(collected, served) == counts
        assert len(served.asked) == 4
        process(collected, served, reward="opensearch_vl")
        assert len(served.asked) == 7  # the queries
        assert read_rewards(collected)["r1"] == pytest.approx(0.66)


def test_a_spent_budget_keeps_the_verdicts_and_a_larger_one_goes_on(collected: Path) -> None:
    terms = {"prompt_price": 10_000.0, "max_requests": 1}  # 1 a verdict
    with serve_chat(judge) as served:
        with pytest.raises(BudgetError):
            process(collected, served, {**terms, "budget": 2})
        assert len((collected / "process" / "judge" / "judgements.jsonl").read_text().splitlines()) == 2
        assert process(collected, served, {**terms, "budget": 9})["judged_answers"] == 3
    assert len(served.asked) == 4


def test_requests_that_fail_leave_rollouts_out_and_too_many_stop_the_stage(
    collected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(body: dict[str, Any], number: int) -> Answer:
        return Answer(status=400) if read_case(body)["answer_to_judge"] == "fast" else judge(body, number)

    with serve_chat(refuse) as served:
        with pytest.raises(TooManyFailuresError, match=r"1 of 4 requests to the judge failed.*verdicts so far are kept"):
            process(collected, served)
        monkeypatch.setattr(judging, "MAX_FAILURE_RATE", 1)
        counts = process(collected, served)
    assert len(served.asked) == 5
    assert (counts["unjudged"], sorted(read_rewards(collected))) == (2, ["r0", "r1", "r2", "r5"])


@pytest.mark.parametrize(("weight", "num_asked"), [(0.0, 0), (0.5, 3)])
def test_beside_searches_answers_are_judged_where_they_count(tmp_path: Path, weight: float, num_asked: int) -> None:
    source = tmp_path / "collect" / "trajectories"
    records = [
        build_trajectory(build_search("rotor", 1), build_answer(text), sample_index=index) for index, text in enumerate(VERDICTS)
    ]
    write_trajectories(source / "part-0.parquet", records)
    with serve_chat(judge) as served:
        process(tmp_path, served, answer_weight=weight)
    assert len(served.asked) == num_asked
    answers = pl.read_parquet(tmp_path / "process" / "turns" / "*.parquet").filter(action="answer")
    assert answers["reward"].to_list() == pytest.approx([weight, weight / 2, 0])
