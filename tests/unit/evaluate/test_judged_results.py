"""The judge of an evaluation's answers: what is kept of what it says, and where its verdicts stand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_server import Answer, ChatServer, serve_chat
from evaluation_cases import build_questions
from factories import build_answer, build_search, build_trajectory
from finished_cases import finish_evaluation

from drag_ray.cli.main import main
from drag_ray.engine.models.adapter import ADAPTER_CONFIG_NAME, ADAPTER_WEIGHTS_NAME
from drag_ray.errors import ArtifactError, BudgetError, ConfigError, TooManyFailuresError
from drag_ray.evaluate.comparison import compare
from drag_ray.evaluate.effort import NO_PRICES
from drag_ray.evaluate.judged_results import apply_judgements, judge_answers, judge_results, list_cases
from drag_ray.evaluate.pairing import Side, compare_evaluations
from drag_ray.evaluate.results import compute_results
from drag_ray.evaluate.scoring import Terms, score_evaluation
from drag_ray.rollout.config import JudgeConfig
from drag_ray.rollout.judgements import Judgements, fingerprint_judge, judge_cases, read_judgements
from drag_ray.storage.artifacts import PREVIOUS_DIR_NAME
from drag_ray.types import Trajectory

QUESTIONS = build_questions(4)
ANSWERS = {
    "base": ("340 rpm", "about 340 turns a minute", "fast", ""),
    "tuned": ("340 rpm", "about 340 turns a minute", "three hundred and forty a minute", "340 or 350 rpm"),
}
VERDICTS = {
    "about 340 turns a minute": '{"verdict": "correct"}',
    "fast": '{"verdict": "incorrect"}',
    "three hundred and forty a minute": '<think>Hm.</think>```json\n{"verdict": "partial"}\n```',
    "340 or 350 rpm": "I would say that it is correct.",
}


def build_rollouts() -> dict[str, list[Trajectory]]:
    return {
        policy: [
            build_trajectory(
                build_search(evidence_rank=1, hits=()), build_answer(answer), question=question, id=f"{policy}-{question.id}"
            )
            for question, answer in zip(QUESTIONS, answers, strict=True)
        ]
        for policy, answers in ANSWERS.items()
    }


def answer(body: dict[str, Any], number: int) -> Answer:
    request = body["messages"][0]["content"]
    case = json.loads(request[request.index("{\n") : request.rindex("}\n\nReply") + 1])
    assert case["right_answers"] == ["340 rpm"]
    return Answer(VERDICTS[case["answer_to_judge"]])


def build_judge(served: ChatServer, **terms: Any) -> JudgeConfig:
    endpoint = {"address": served.address, "max_retries": 0, **terms}
    return JudgeConfig.model_validate({"enabled": True, "engine": {"backend": "openai", "model": "judge", "endpoint": endpoint}})


@pytest.mark.seconds
def test_each_answer_is_judged_once_and_what_needs_no_judge_is_not_asked(tmp_path: Path) -> None:
    with serve_chat(answer) as served:
        judge = build_judge(served, prompt_price=1000.0, completion_price=10_000.0)
        judgements = judge_answers(build_rollouts(), judge, tmp_path / "judge")
        assert len(served.asked) == 4
        assert {body["temperature"] for body in served.asked} == {0.0}
        assert judge_answers(build_rollouts(), judge, tmp_path / "judge") == judgements
        judge_cases(list_cases(build_rollouts()), judge, tmp_path / "next", [tmp_path / "judge"])
        assert read_judgements(tmp_path / "next") == judgements
        assert len(served.asked) == 4
        other = judge.model_copy(update={"engine": judge.engine.model_copy(update={"model": "another judge"})})
        judge_answers(build_rollouts(), other, tmp_path / "judge")
        assert len(served.asked) == 8
    said = judgements.describe(judge)
    assert "4 replies, 1 of them without a verdict; 400 tokens read, 40 written, cost 0.8." in said


def test_another_adapter_in_the_same_folder_is_another_judge(tmp_path: Path) -> None:
    for name in (ADAPTER_CONFIG_NAME, ADAPTER_WEIGHTS_NAME):
        (tmp_path / name).write_text(name)
    judge = JudgeConfig.model_validate({"enabled": True, "engine": {"adapter": str(tmp_path)}})
    before = fingerprint_judge(judge)
    assert fingerprint_judge(judge) == before
    (tmp_path / ADAPTER_WEIGHTS_NAME).write_text("another")
    assert fingerprint_judge(judge) != before
    (tmp_path / ADAPTER_WEIGHTS_NAME).unlink()
    with pytest.raises(ArtifactError, match=ADAPTER_WEIGHTS_NAME):
        fingerprint_judge(judge)


def test_verdicts_become_a_measure_without_what_was_not_judged(tmp_path: Path) -> None:
    rollouts = build_rollouts()
    rollouts["base"][3] = replace(rollouts["base"][3], error="RolloutError: lost")
    with serve_chat(answer) as served:
        judgements = judge_answers(rollouts, build_judge(served), tmp_path)
    results = apply_judgements(compute_results(rollouts, QUESTIONS), rollouts, judgements)
    assert [row.answer.semantic for row in results["base"]] == [1, 1, 0, 0]
    assert [row.answer.semantic for row in results["tuned"]] == [1, 1, 0.5, None]
    comparison = compare(results, "base", num_resamples=100)
    metrics = comparison.row("semantic_accuracy").metrics
    assert [(metric.value, metric.n) for metric in metrics.values()] == [(0.5, 4), (pytest.approx(2.5 / 3), 3)]
    assert (comparison.incidents["base"].num_unjudged, comparison.incidents["tuned"].num_unjudged) == (0, 1)


def test_the_results_of_a_stage_come_with_who_judged_them_and_at_which_cost(tmp_path: Path) -> None:
    rollouts, stage_dir = build_rollouts(), tmp_path / "evaluate"
    results = compute_results(rollouts, QUESTIONS)
    earlier = tmp_path / PREVIOUS_DIR_NAME / "evaluate-1-then" / "judge"
    with serve_chat(answer) as served:
        judge = build_judge(served, prompt_price=1000.0, completion_price=10_000.0)
        judge_answers({"base": rollouts["base"]}, judge, earlier)
        judged = judge_results(results, rollouts, judge, stage_dir, max_failure_rate=0)
        assert len(served.asked) == 4  # the two of base were known
    assert [row.answer.semantic for row in judged.results["tuned"]] == [1, 1, 0.5, None]
    assert (judged.counts, judged.cost) == ({"judged": 4, "unjudged": 1}, pytest.approx(2 * 0.2))
    assert "judged by judge" in judged.description


def test_without_a_judge_nothing_is_said_of_meaning() -> None:
    rows = compare(compute_results(build_rollouts(), QUESTIONS), "base", num_resamples=100).rows
    assert "semantic_accuracy" not in [row.name for row in rows]


@pytest.mark.seconds
def test_requests_that_fail_have_no_verdict_and_are_made_again(tmp_path: Path) -> None:
    def refuse(body: dict[str, Any], number: int) -> Answer:
        return Answer(status=500) if number == 0 else answer(body, number)

    with serve_chat(refuse) as served:
        judge = build_judge(served)
        with pytest.raises(TooManyFailuresError, match=r"1 of 4 requests to the judge failed.*500"):
            judge_answers(build_rollouts(), judge, tmp_path / "strict")
    with serve_chat(refuse) as served:
        judge_cases(list_cases(build_rollouts()), build_judge(served), tmp_path, max_failure_rate=0.5)
        assert len(read_judgements(tmp_path).by_case) == 3
        judge_answers(build_rollouts(), build_judge(served), tmp_path)
    assert len(served.asked) == 5


def test_a_spent_budget_keeps_the_verdicts_so_far(tmp_path: Path) -> None:
    terms = {"prompt_price": 10_000.0, "max_requests": 1}  # 1 a verdict
    with serve_chat(answer) as served:
        with pytest.raises(BudgetError):
            judge_answers(build_rollouts(), build_judge(served, budget=2, **terms), tmp_path)
        assert len(read_judgements(tmp_path).by_case) == 2
        judge_answers(build_rollouts(), build_judge(served, budget=9, **terms), tmp_path)
    assert len(served.asked) == 4


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    return finish_evaluation(tmp_path / "run" / "evaluate", build_rollouts(), QUESTIONS)


def write_config(served: ChatServer, path: Path) -> Path:
    lines = ["[evaluate.judge.engine]", 'backend = "openai"', 'model = "judge"']
    path.write_text("\n".join([*lines, "[evaluate.judge.engine.endpoint]", f'address = "{served.address}"']))
    return path


@pytest.mark.seconds
def test_a_judge_is_added_to_a_finished_evaluation(evaluation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "judged"
    with serve_chat(answer) as served:
        command = [
            "score",
            str(evaluation),
            "--judge",
            str(write_config(served, tmp_path / "judge.toml")),
            "--report",
            str(report),
        ]
        assert main(command) == 0
        assert main(command) == 0
        assert len(served.asked) == 4
    assert "Semantic accuracy" in capsys.readouterr().out
    comparison = json.loads((report / "comparison.json").read_text())
    assert "judged by judge" in comparison["context"]["judge"]
    assert "judged by judge" in (report / "report.md").read_text()
    values = [json.loads(line)["semantic"] for line in (report / "results.jsonl").read_text().splitlines()]
    assert values == [1, 1, 0, 0, 1, 1, 0.5, None]


@pytest.mark.seconds
def test_a_judge_that_is_down_leaves_no_report_and_is_asked_when_it_is_back(
    evaluation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "judged"
    with serve_chat(answer) as served:
        config = write_config(served, tmp_path / "judge.toml")
    config.write_text(config.read_text() + "\nmax_retries = 0")
    command = ["score", str(evaluation), "--judge", str(config), "--report", str(report)]
    assert main(command) == 1
    said = capsys.readouterr()
    assert "4 of 4 requests to the judge failed" in said.err
    assert f"{served.address} did not answer in 1 tries" in said.err
    assert not (report / "comparison.json").exists()
    with serve_chat(answer) as served:
        write_config(served, config)
        assert main(command) == 0
    assert (report / "comparison.json").exists()


def test_verdicts_want_a_place_to_be_kept(evaluation: Path) -> None:
    with pytest.raises(ConfigError, match="--report FOLDER"):
        score_evaluation(evaluation, Terms(), NO_PRICES, judge=JudgeConfig())


def test_recorded_verdicts_count_when_it_is_scored_again(tmp_path: Path) -> None:
    with serve_chat(answer) as served:
        path = finish_evaluation(tmp_path / "evaluate", build_rollouts(), QUESTIONS, build_judge(served))
    [table] = [part.table for part in score_evaluation(path, Terms(), NO_PRICES).parts if part.heading == "Measures"]
    assert [row[0] for row in table if row[0].startswith("Semantic")]


@pytest.mark.seconds
def test_two_evaluations_share_the_measure_if_they_share_the_judge(evaluation: Path, tmp_path: Path) -> None:
    with serve_chat(answer) as served:
        judge = build_judge(served)
        other = judge.model_copy(update={"max_tokens": 2000})
        paths = [
            finish_evaluation(tmp_path / name, build_rollouts(), QUESTIONS, config)
            for name, config in (("first", judge), ("second", judge), ("third", other))
        ]
    first, second, third = (Side(path) for path in paths)
    comparison, _ = compare_evaluations(first, second, NO_PRICES, num_resamples=100)
    assert comparison.row("semantic_accuracy").metrics["A:tuned"].n == 3
    for side in (third, Side(evaluation)):
        comparison, _ = compare_evaluations(first, side, NO_PRICES, num_resamples=100)
        assert "semantic_accuracy" not in [row.name for row in comparison.rows]


def test_judgements_of_none_say_so() -> None:
    assert "0 replies" in Judgements().describe(JudgeConfig())
