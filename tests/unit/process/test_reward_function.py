"""Rewards by a function of the user's: what it is given, what is done with what it returns, and what is refused."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import own_rewards
import pytest
from factories import EVIDENCE, asked_at, build_answer, build_call, build_question, build_search, build_trajectory, build_turn

from drag_ray.errors import ConfigError
from drag_ray.format.config import FormatConfig
from drag_ray.format.row_format import load_format
from drag_ray.format.tables import ScoredPart
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.process import reward_function
from drag_ray.process.config import ProcessConfig, ProcessSections
from drag_ray.process.reward_function import Rollout, ScoredReply, load_reward_function
from drag_ray.rl.config import RlSections
from drag_ray.types import ActionKind, Trajectory

Process = Callable[..., ScoredPart]


def name_function(name: str) -> str:
    return f"own_rewards:{name}"


def two_replies(**fields: Any) -> Trajectory:
    return build_trajectory(build_search("rotor", 2), build_turn(raw_text="12345"), **fields)


def test_a_function_is_given_what_is_known_of_each_rollout(process: Process) -> None:
    own_rewards.REWARDED.clear()
    turns = (
        build_search("rotor", 2, finish_reason="length"),
        build_search("spar", error="no index"),
        build_call(tool_error="no such page"),
        build_turn(raw_text="?"),
        build_answer("340 rpm"),
    )
    question = build_question(answers=("340 rpm", "340"))
    given = build_trajectory(*turns, question=question, **asked_at(3))
    process(given, reward=name_function("keep"), filters=())
    [rollout] = own_rewards.REWARDED
    expected = (
        ScoredReply("<search>rotor</search>", ActionKind.SEARCH, "rotor", rank=2, is_cut=True),
        ScoredReply("<search>spar</search>", ActionKind.SEARCH, "spar", error="no index"),
        ScoredReply(turns[2].raw_text, ActionKind.TOOL, tool="grep", error="no such page"),
        ScoredReply("?", ActionKind.INVALID),
        ScoredReply("<answer>340 rpm</answer>", ActionKind.ANSWER),
    )
    assert rollout == Rollout(
        given.id, question.question, "find_page", question.evidence, ("340 rpm", "340"), 3, "340 rpm", 1.0, expected
    )
    assert EVIDENCE in rollout.evidence


@pytest.mark.parametrize("task", ["find_page", "answer"])
def test_what_it_returns_is_the_reward_of_each_reply_and_their_sum_that_of_the_rollout(process: Process, task: str) -> None:
    part = process(
        two_replies(task=task),
        two_replies(sample_index=1, task=task),
        build_trajectory(sample_index=2, task=task),
        reward=name_function("reward_letters"),
    )  # the last has no replies
    share = 17 / 22  # of the letters of <search>rotor</search>
    assert part.turns["reward"].to_list() == pytest.approx([share, 0.0] * 2)
    assert part.trajectories["reward"].to_list() == pytest.approx([share, share, 0.0])


def test_replies_are_credited_by_it_alone_also_where_ranks_are_the_same(process: Process) -> None:
    searches = [build_search("rotor", 2), build_search("1 2 3 4 5", 2), build_turn(raw_text="12345")]
    rollouts = [build_trajectory(turn, sample_index=number) for number, turn in enumerate(searches)]
    rows = load_format("rl_steps").build_rows(process(*rollouts, reward=name_function("reward_letters")), FormatConfig())
    shares = [17 / 22, 12 / 26, 0.0]
    mean = sum(shares) / 3
    assert rows["advantage"].to_list() == pytest.approx([share - mean for share in shares])
    rows = load_format("rl_steps").build_rows(process(*rollouts[:2], reward="gain"), FormatConfig())
    assert rows["advantage"].to_list() == [0.0, 0.0]


def test_a_reply_that_is_no_search_is_no_target_of_supervised_rows_whatever_it_earns(process: Process) -> None:
    rollout = build_trajectory(build_turn(raw_text="letters"), build_search("1 2 3", 2), **asked_at(None))
    rows = load_format("sft_trajectory").build_rows(process(rollout, reward=name_function("reward_letters")), FormatConfig())
    assert rows["train_turns"].to_list() == [[False, True]]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no_such_package.rewards:give", "no_such_package.rewards cannot be imported (ModuleNotFoundError"),
        ("own_rewards:no_such", "own_rewards has nothing of the name 'no_such'. Expected a function of one argument"),
        ("own_rewards:number", "own_rewards has int of the name 'number'"),
        ("own_rewards:take_two", "it cannot be called with a rollout (missing a required argument: 'other')"),
        ("own_rewards:wait", "it is a coroutine function"),
        ("builtins:len", "builtins is no file of Python, so a change would go unseen"),
    ],
)
def test_a_function_that_cannot_be_had_is_refused_before_anything_is_started(name: str, problem: str) -> None:
    config = RunConfig.model_validate({"process": {"reward": name}})
    for sections in (ProcessSections, RlSections):
        with pytest.raises(ConfigError, match=re.escape(f"process.reward {name!r}: {problem}")):
            config.take(sections).check()


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("fail", "it raised ZeroDivisionError: division by zero"),
        ("give_none", "it returned NoneType None, expected 2 finite number(s), one for each reply"),
        ("give_number", "it returned float 0.5, expected 2 finite"),
        ("give_text", "it returned str '12', expected 2 finite"),
        ("give_too_few", "it returned 1 value(s), expected 2 finite"),
        ("give_texts", "for reply 1 it returned str '1'"),
        ("give_nan", "for reply 2 it returned float nan"),
        ("give_infinity", "for reply 1 it returned float -inf"),
        ("give_nothing_for_one", "for reply 2 it returned NoneType None"),
        ("give_by_step", "it returned dict {1: 0.5, 2: 0.7}, expected 2 finite"),
        ("give_too_large", "for reply 1 it returned int 1000"),
        ("leave", "it raised SystemExit: 0"),
        ("never_return", "it raised TimeoutError: it took longer than 0.1 s for a rollout"),
    ],
)
def test_what_is_no_number_for_each_reply_is_an_error_that_names_function_and_trajectory(
    process: Process, monkeypatch: pytest.MonkeyPatch, function: str, problem: str
) -> None:
    rollout = two_replies()
    monkeypatch.setattr(reward_function, "_MOST_S", 0.1)
    with pytest.raises(ConfigError, match=re.escape(f"{name_function(function)!r}: trajectory {rollout.id!r}: ")) as caught:
        process(rollout, reward=name_function(function))
    assert problem in str(caught.value)


@pytest.mark.parametrize("reward", ["", "own", "own_rewards:", ":keep", "own rewards:keep", "own_rewards:keep:keep", "a.b"])
def test_a_name_that_is_neither_a_reward_nor_a_function_is_refused(reward: str) -> None:
    with pytest.raises(ValueError, match="expected gain, candidates, v_retrver, opensearch_vl, or a function of yours"):
        ProcessConfig(reward=reward)


def test_another_text_of_the_module_makes_both_stages_stale() -> None:
    config = RunConfig.model_validate({"process": {"reward": name_function("keep")}})
    source = Path(own_rewards.__file__)
    assert [config.take(sections).list_code() for sections in (ProcessSections, RlSections)] == [[source]] * 2
    plain = RunConfig()
    assert [plain.take(sections).list_code() for sections in (ProcessSections, RlSections)] == [[], []]


def test_a_module_that_has_changed_since_it_was_imported_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage would be known by the new text and run the old one."""
    source = tmp_path / "rewards_that_change.py"
    source.write_text("def give(rollout): return [1.0]\n")
    monkeypatch.syspath_prepend(tmp_path)
    load_reward_function("rewards_that_change:give")
    source.write_text("def give(rollout): return [2.0]\n")
    with pytest.raises(ConfigError, match=r"rewards_that_change.py has changed since this process imported it"):
        load_reward_function("rewards_that_change:give")


def test_a_rollout_without_replies_is_not_scored(process: Process) -> None:
    own_rewards.REWARDED.clear()
    process(build_trajectory(id="empty"), two_replies(id="whole"), reward=name_function("keep"))
    assert [rollout.id for rollout in own_rewards.REWARDED] == ["whole"]


def test_a_number_for_a_rollout_stands_on_its_last_reply() -> None:
    function = load_reward_function(name_function("reward_last_rank"))
    replies = (ScoredReply("", ActionKind.SEARCH, rank=4), ScoredReply("", ActionKind.SEARCH))
    assert function(Rollout("t", "", "find_page", (), (), None, "", 0.0, replies)) == [0.0, 0.25]
