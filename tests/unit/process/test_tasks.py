"""Turns of the tasks rerank and answer, as they are scored and become rows."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from factories import asked_at, build_answer, build_call, build_question, build_search, build_trajectory, build_turn

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.format.config import FormatConfig
from drag_ray.format.rows import dpo, rejection, rl_steps, sft_trajectory
from drag_ray.format.tables import ScoredPart
from drag_ray.process.statistics import count_part
from drag_ray.types import Trajectory, Turn


def build_order(order: str, evidence_rank: int | None) -> Turn:
    return build_search(order, evidence_rank, raw_text=f"<answer>{order}</answer>")


def build_list(*turns: Turn, **fields: Any) -> Trajectory:
    return build_trajectory(*turns, **{**asked_at(7), "task": "rerank", "protocol": "ranking", **fields})


# 1 / log2(1 + rank): 1/3 at 7, .5 at 3, .43068 at 4, 1 at 1.
def test_a_window_is_worth_what_it_changes_in_the_list(process) -> None:
    part = process(build_list(build_order("[2, 1]", 3), build_order("[1, 2]", 4), build_turn(), build_order("[4, 1]", 1)))
    assert part.turns["reward"].to_list() == pytest.approx([1 / 6, 0.43068 - 0.5, -0.2, 1 - 0.43068], abs=1e-4)
    assert part.turns["gain"].to_list() == pytest.approx([1 / 6, 0.43068 - 1 / 3, 0, 2 / 3], abs=1e-4)
    assert part.trajectories["reward"].to_list() == pytest.approx([2 / 3 - 0.2], abs=1e-4)
    assert part.trajectories["best_rank"].to_list() == [1]


def test_lists_become_conversations_pairs_and_steps(process) -> None:
    good = build_list(build_order("[2, 1]", 3), build_order("[3, 1]", 1))
    bad = build_list(build_order("[1, 2]", 7), build_order("[1, 3]", 7), sample_index=1)
    part = process(good, bad)
    rows = sft_trajectory.build_rows(part, FormatConfig()).to_dicts()
    assert [(row["train_turns"], row["messages"][-1]["content"]) for row in rows] == [([True, True], "<answer>[3, 1]</answer>")]
    pairs = dpo.build_rows(part, FormatConfig(include_reasoning=False)).to_dicts()
    assert [(pair["chosen"][0]["content"], pair["rejected"][0]["content"]) for pair in pairs] == [
        ("<answer>[2, 1]</answer>", "<answer>[1, 2]</answer>")
    ]
    assert len(rejection.build_rows(part, FormatConfig())) == 1
    steps = rl_steps.build_rows(part, FormatConfig())
    assert steps["advantage"].to_list()[:2] == pytest.approx([1 / 12, 1 / 4], abs=1e-4)


def build_answered(*turns: Turn, **fields: Any) -> Trajectory:
    question = build_question(evidence=(), answers=("340 rpm",))
    return build_trajectory(*turns, question=question, **{"task": "answer", "tools": json.dumps([]), **fields})


def test_the_answer_is_what_counts_whatever_was_found(process) -> None:
    right = build_answered(build_search("rotor"), build_call(), build_answer("340 rpm"))
    wrong = build_answered(build_search("rotor"), build_answer("fuel"), sample_index=1)
    part = process(right, wrong)
    assert part.turns["reward"].to_list() == [0.0, 0.0, 1.0, 0.0, 0.0]
    assert part.turns["found"].to_list() == [False, False, True, False, False]
    assert part.trajectories["valid"].to_list() == [True, False]
    assert part.trajectories["num_searches"].to_list() == [1, 1]
    counts = count_part(part.turns, part.trajectories)
    assert (counts["valid"], counts["questions_with_win"]) == (1, 1)


def test_only_conversations_with_a_right_answer_are_learned_with_their_calls(process) -> None:
    right = build_answered(build_search("rotor"), build_call(), build_turn(), build_answer("340 rpm"))
    wrong = build_answered(build_search("fuel"), build_answer("12"), sample_index=1)
    part = process(right, wrong)
    rows = sft_trajectory.build_rows(part, FormatConfig())
    assert rows["train_turns"].to_list() == [[True, True, False, True]]
    assert rows["messages"].to_list()[0][-1]["content"] == "<answer>340 rpm</answer>"
    assert rejection.build_rows(part, FormatConfig())["train_turns"].to_list() == [[True, True, False, True]]


def test_answers_to_the_same_state_become_pairs_of_which_the_chosen_one_is_right(process) -> None:
    replies = [
        ("340 rpm", "<think>I saw it.</think><answer>340 rpm</answer>"),
        ("fuel", "<answer>fuel</answer>"),
        ("34", "<answer>34</answer>"),
    ]
    samples = [build_answered(build_answer(text, raw_text=raw), sample_index=index) for index, (text, raw) in enumerate(replies)]
    later = build_answered(build_search("rotor"), build_answer("blade"), sample_index=3)
    part = process(*samples, later)
    rows = dpo.build_rows(part, FormatConfig()).to_dicts()
    said = {(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows}
    assert said == {(replies[0][1], replies[1][1]), (replies[0][1], replies[2][1])}
    assert {(row["chosen_score"], len(row["prompt"])) for row in rows} == {(1.0, 2)}
    bare = dpo.build_rows(part, FormatConfig(include_reasoning=False)).to_dicts()
    assert {row["chosen"][0]["content"] for row in bare} == {"<answer>340 rpm</answer>"}


def test_a_question_without_evidence_is_of_use_to_the_task_answer_alone(process) -> None:
    part = process(build_answered(build_answer()), build_answered(build_answer(), task="find_page", sample_index=1))
    assert part.trajectories["trajectory_id"].to_list() == ["q1-0"]


def test_the_reward_of_v_retrver_is_that_of_the_reply_and_an_order_in_the_last_reply_counts(process) -> None:
    reply = "<think>2 fits</think><answer>[2, 1]</answer>"
    good = build_list(build_search("[2, 1]", 1, raw_text=reply), build_turn())
    part = process(good, reward="v_retrver")
    assert part.turns["reward"].to_list() == pytest.approx([1.0, 0.0])
    part = process(ask_for_order(build_list(build_call(), build_order("[2, 1]", 1)), step=2))
    assert part.turns["drop_reason"].to_list() == ["", ""]
    assert part.turns["reward"].to_list() == pytest.approx([0, 2 / 3])


LOOK = "<think>Which?</think>" + render_call("zoom", {"image": "image_1"})


def test_a_look_before_an_order_has_the_credit_of_its_window(process) -> None:
    def order(rank: int) -> Turn:
        return build_search("[2, 1]", rank, raw_text="<think>2 fits</think><answer>[2, 1]</answer>")

    looks = [build_call("zoom", raw_text=LOOK), build_call("zoom", "no such image", raw_text=LOOK)]
    closer = build_list(*looks, order(2), build_call("zoom", raw_text=LOOK), build_call("zoom", raw_text=LOOK), order(1))
    blind = [build_list(order(2), order(2), sample_index=number) for number in (1, 2)]
    part = process(closer, *blind, reward="v_retrver")
    second, curiosity = 0.3 + 0.7 * math.exp(-0.5), 0.6 * (0.6 - 1 / 3)
    windows = [0, 0, second + curiosity, 0, 0, 1 + curiosity - 0.05]
    assert part.turns["reward"].to_list() == pytest.approx([*windows, *[second] * 4])
    first, last = curiosity * 2 / 3, (1 + curiosity - 0.05 - second) * 2 / 3  # above the mean of the three
    expected = [first] * 3 + [last] * 3 + [-first / 2, -last / 2] * 2
    assert rl_steps.build_rows(part, FormatConfig())["advantage"].to_list() == pytest.approx(expected)


def test_a_trajectory_has_the_reward_of_a_window_that_called_once(process) -> None:
    called = build_list(build_call("zoom", raw_text="zoom"), build_order("[2, 1]", 1))
    blind = [build_list(build_order("[2, 1]", 1), sample_index=number) for number in (1, 2)]
    part = process(called, *blind, reward="v_retrver")
    rewards = [0.7 + 0.6 * (0.6 - 1 / 3), 0.7, 0.7]  # first place, no reasoning in tags, and one of three called: .86
    assert part.trajectories["reward"].to_list() == pytest.approx(rewards)
    steps = rl_steps.build_rows(part, FormatConfig())
    assert steps["trajectory_reward"].to_list() == pytest.approx([0.86, 0.86, 0.7, 0.7])
    assert steps["advantage"].to_list() == pytest.approx([0.32 / 3, 0.32 / 3, -0.16 / 3, -0.16 / 3])


def ask_for_order(trajectory: Trajectory, step: int) -> Trajectory:
    """The rollout with the request for the order before the reply of a step."""
    messages = json.loads(trajectory.messages)
    messages[trajectory.turns[step - 1].num_prompt_messages - 1]["content"] += "\n\n" + get_protocol("ranking").final_request
    return replace(trajectory, messages=json.dumps(messages))


def test_a_window_is_compared_with_the_same_window_alone_also_after_one_that_calls_have_used_up(process) -> None:
    used_up = ask_for_order(build_list(build_call(), build_call(), build_order("[2, 1]", 3)), step=2)
    ordered = build_list(build_order("[2, 1]", 3), build_order("[2, 1]", 1), sample_index=1)
    part = process(used_up, ordered)
    assert part.turns["window"].to_list() == [0, 0, 1, 0, 1]
    # The first window earns 0 - .2 and 1/2 - 1/3, the second 1/2 - 1/3 and 1 - 1/2.
    assert part.turns["reward"].to_list() == pytest.approx([0, -0.2, 1 / 6, 1 / 6, 1 / 2])
    advantages = rl_steps.build_rows(part, FormatConfig())["advantage"].to_list()
    assert advantages == pytest.approx([-0.55 / 3, -0.55 / 3, -1 / 6, 0.55 / 3, 1 / 6])


def test_the_reward_of_opensearch_vl_is_the_credit_of_the_whole_rollout(process) -> None:
    right = build_answered(build_search("rotor"), build_turn(), build_call(), build_answer("340 rpm"))
    silent = build_answered(build_search("rotor"), build_call(), sample_index=1)
    part = process(right, silent, reward="opensearch_vl")
    assert part.turns["reward"].to_list() == [0.0, 0.0, 0.0, 0.75, 0.0, 0.0]
    mended = build_answered(build_call(tool_error="no such page"), build_search("rotor"), build_answer())
    wrong = build_answered(build_answer("fuel"), sample_index=1)
    endless = build_answered(build_answer(finish_reason="length"), sample_index=1)  # right, and went on until it was cut
    assert process(endless, reward="opensearch_vl").turns["reward"].to_list() == [0.0]
    assert list_advantages(process(mended, wrong, reward="opensearch_vl")) == [
        [pytest.approx(1 / 3)] * 3,
        [pytest.approx(-1 / 3)],
    ]


def list_advantages(part: ScoredPart) -> list[list[float]]:
    """Step by step, of each rollout."""
    steps = rl_steps.build_rows(part, FormatConfig())
    return steps.group_by("trajectory_id", maintain_order=True).agg("advantage")["advantage"].to_list()


def test_searching_first_is_encouraged_where_it_brings_a_better_answer_however_many_steps_it_takes(process) -> None:
    searches = [build_search(f"rotor {number}") for number in range(3)]
    right = [build_answered(*searches[:num], build_answer(), sample_index=num) for num in (1, 2, 3)]
    wrong = build_answered(searches[0], build_answer("fuel"), sample_index=4)
    advantages = list_advantages(process(*right, wrong))
    assert advantages == [[0.25] * 2, [0.25] * 3, [0.25] * 4, [-0.75] * 2]  # the mean of 1, 1, 1 and 0 is .75
    at_once = [build_answered(build_answer("999 rpm"), sample_index=number) for number in range(4)]  # 3 of 7 letters differ
    later = [build_answered(build_search("rotor"), build_answer(), sample_index=number) for number in range(4, 8)]
    advantages = list_advantages(process(*at_once, *later))
    below = (4 / 7 - 1) / 2  # .571 and 1.0, above their mean
    assert advantages == [[pytest.approx(below)]] * 4 + [[pytest.approx(-below)] * 2] * 4


def test_a_rollout_of_failed_searches_alone_counts_in_the_mean(process) -> None:
    right = build_answered(build_answer())
    failed = build_answered(*[build_search(error="too dear") for _ in range(2)], sample_index=1)
    wrong = build_answered(build_answer("fuel"), sample_index=2)
    assert list_advantages(process(right, failed, wrong)) == [[pytest.approx(2 / 3)], [pytest.approx(-1 / 3)]]


def test_a_rollout_that_breaks_down_is_cut_before_its_errors_and_counts_in_the_mean(process) -> None:
    errors = [build_call(tool_error="no such page") for _ in range(3)]
    right = build_answered(build_search("rotor"), *errors, build_answer())
    at_once = build_answered(*errors, build_answer("999 rpm"), sample_index=1)  # nothing of it is left to learn from
    wrong = build_answered(build_answer("fuel"), sample_index=2)
    mean = (1 + 4 / 7 + 0) / 3
    assert list_advantages(process(right, at_once, wrong)) == [[pytest.approx(1 - mean)], [pytest.approx(-mean)]]
    broken = build_answered(build_turn(), *errors, build_answer("fuel"))
    right = build_answered(build_answer("340 rpm"), sample_index=1)
    part = process(broken, right)
    assert part.turns["fatal_step"].to_list() == [2, 2, 2, 2, 2, None]
    steps = rl_steps.build_rows(part, FormatConfig())
    assert steps["trajectory_id"].to_list() == ["q1-0", "q1-1"]
    assert steps["reward"].to_list() == [-0.2, 1.0]
    assert steps["advantage"].to_list() == pytest.approx([0.0, 0.6])
