"""Searches and records of a policy that adds words to the question, and other ways to ask the model the same."""

import asyncio
import json
from pathlib import Path

from factories import build_question
from rollout_cases import QUESTION, roll_out
from scripted_engine import ScriptedEngine
from small_index import open_index

from drag_ray.agent.config import AgentConfig, Example, PromptSet
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.engine.generate import Generation, Request
from drag_ray.types import ActionKind, Page, Trajectory

REWRITE = {"query_mode": "rewrite", "max_iterations": 1}
EXPAND = {"query_mode": "expand", "question_weight": 3.0, "max_iterations": 1}
ROTOR = build_question(question="Which rotor?", evidence=QUESTION.evidence)


def roll_out_rotor(reply: str, environment: SearchEnvironment, **options: object) -> Trajectory:
    return roll_out(ScriptedEngine(lambda _: reply), environment, ROTOR, **options)


def test_in_the_mode_expand_words_are_recorded_and_searched_with_the_question(
    environment: SearchEnvironment,
) -> None:
    trajectory = roll_out_rotor("<search>flight^4  whole</search>", environment, **EXPAND)
    [turn] = trajectory.turns
    assert (turn.action, turn.query) == (ActionKind.SEARCH, "flight^4 whole")
    assert turn.ranking.hits == tuple(environment._index.search_expanded(ROTOR.question, "flight^4 whole", 3.0, 10))
    assert [hit.file for hit in turn.ranking.hits] == ["b.pdf", "a.pdf"]
    assert [hit.file for hit in trajectory.question_search.hits] == ["a.pdf", "b.pdf"]
    assert (turn.ranking.evidence_rank, trajectory.question_search.rank) == (1, 2)
    assert (trajectory.question_search.mode, trajectory.question_search.weight) == ("expand", 3.0)


def test_an_empty_search_adds_nothing_to_the_question_and_is_no_query_of_its_own(environment: SearchEnvironment) -> None:
    trajectory = roll_out_rotor("<search> </search>", environment, **EXPAND)
    [turn] = trajectory.turns
    assert (turn.action, turn.query) == (ActionKind.SEARCH, "")
    assert turn.ranking.hits == trajectory.question_search.hits != ()
    [turn] = roll_out_rotor("<search> </search>", environment, **REWRITE).turns
    assert (turn.action, turn.ranking.hits) == (ActionKind.INVALID, ())


def test_a_question_is_measured_by_what_nothing_added_finds_whatever_the_operator(tmp_path: Path) -> None:
    pages = [Page("a.pdf", 1, 1, "rotor"), Page("b.pdf", 2, 2, "which")]
    environment = SearchEnvironment(open_index(tmp_path, pages, operator="and"), top_k=2, depth=10)
    assert roll_out_rotor("<search>fuel</search>", environment, **REWRITE).question_search.hits == ()
    trajectory = roll_out_rotor("<search></search>", environment, **EXPAND, question_words="all")
    assert trajectory.question_search.rank is not None
    assert trajectory.turns[0].ranking.hits == trajectory.question_search.hits


def test_what_an_expanding_agent_is_told_is_to_add_words(environment: SearchEnvironment) -> None:
    told = json.loads(roll_out_rotor("<search></search>", environment, **EXPAND).messages)[0]["content"]
    assert "add nothing" in told
    assert "<search>words to add</search>" in told
    assert "<answer>" not in told
    several = json.loads(roll_out_rotor("<search></search>", environment, **{**EXPAND, "max_iterations": 2}).messages)
    assert "<answer>" in several[0]["content"]
    own = roll_out_rotor("<search></search>", environment, **EXPAND, instructions="Add words.")
    assert json.loads(own.messages)[0]["content"].startswith("Add words.\n")


def test_an_agent_of_key_words_starts_from_what_they_find_and_says_so(tmp_path: Path) -> None:
    pages = [Page("a.pdf", 1, 1, "rotor speed"), Page("b.pdf", 2, 2, "which"), Page("c.pdf", 3, 3, "flight")]
    environment = SearchEnvironment(open_index(tmp_path, pages), top_k=3, depth=10)
    of_all, of_key = (
        roll_out_rotor("<search>flight</search>", environment, **EXPAND, question_words=words) for words in ("all", "key")
    )
    assert [sorted(hit.file for hit in rollout.question_search.hits) for rollout in (of_all, of_key)] == [
        ["a.pdf", "b.pdf"],
        ["a.pdf"],
    ]
    assert sorted(hit.file for hit in of_key.turns[0].ranking.hits) == ["a.pdf", "c.pdf"]
    assert (of_key.question, of_key.question_search.words) == (ROTOR.question, "key")
    assert roll_out_rotor("<search>flight</search>", environment, **EXPAND).question_search.words == "key"
    assert "The key words of the question are searched" in json.loads(of_key.messages)[0]["content"]


PROMPT_SETS = (
    PromptSet(instructions="Be brief.", examples=(Example(question="Where is the fuel?", query="tank"),)),
    PromptSet(examples=(Example(question="Who flies?", query="crew"),)),
)


def test_a_prompt_set_changes_what_the_policy_is_asked_with_and_not_what_is_recorded(environment: SearchEnvironment) -> None:
    config = AgentConfig(top_k=2, max_iterations=2, examples=(Example(question="What turns?", query="vane"),))
    said = [("<search>rotor</search>", (5,), (-0.5,)), ("<answer>x</answer>", (6,), (-0.25,))]

    async def generate(request: Request) -> Generation:
        requests.append(request)
        text, ids, logprobs = said[len(requests) % 2 - 1]
        return Generation(text, (1, 2, 3), ids, "stop", completion_logprobs=logprobs)

    requests: list[Request] = []
    rollouts = Rollouts(config, Policy("model"), generate, environment, "index", prompt_sets=PROMPT_SETS)
    own, brief, crew = (
        asyncio.run(rollouts.run(RolloutTask(QUESTION, number, "default", 7, prompt_set=number))) for number in range(3)
    )
    assert [trajectory.provenance.prompt_set for trajectory in (own, brief, crew)] == [0, 1, 2]
    assert own.messages == brief.messages == crew.messages
    assert own.provenance.agent_fingerprint == brief.provenance.agent_fingerprint
    assert "vane" in own.messages
    asked = [json.dumps(request.messages) for request in requests]
    assert [("vane" in text, "tank" in text, "crew" in text) for text in asked] == [
        *[(True, False, False)] * 2,
        *[(False, True, False)] * 2,
        *[(False, False, True)] * 2,
    ]
    assert ["Be brief." in text for text in asked] == [False, False, True, True, False, False]
    recorded = json.loads(brief.messages)
    assert list(requests[3].messages[4:]) == recorded[4:-1]  # the reply to the first opening, and the pages that it led to
    for trajectory, prompt_ids, logprobs in ((own, (1, 2, 3), (-0.5,)), (brief, (), ()), (crew, (), ())):
        turn = trajectory.turns[0]
        assert (turn.reply.prompt_token_ids, turn.reply.completion_token_ids, turn.reply.completion_logprobs) == (
            prompt_ids,
            (5,),
            logprobs,
        )
        assert recorded[turn.num_prompt_messages] == {"role": "assistant", "content": turn.raw_text}
