"""What is searched and recorded when the policy adds words to the question, instead of writing a query."""

import asyncio
import json
from pathlib import Path

from factories import build_question
from rollout_cases import QUESTION

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.engine.scripted import ScriptedEngine
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.searcher import Searcher
from drag_ray.storage import artifacts
from drag_ray.types import ActionKind, Page, Trajectory

REWRITE = {"query_mode": "rewrite", "max_iterations": 1}
EXPAND = {"query_mode": "expand", "question_weight": 3.0, "max_iterations": 1}
ROTOR = build_question(question="Which rotor?", evidence=QUESTION.evidence)


def roll_out_rotor(reply: str, environment: SearchEnvironment, **options: object) -> Trajectory:
    config = AgentConfig(**{"top_k": 2, **options})  # type: ignore[arg-type]
    rollouts = Rollouts(config, Policy("model"), ScriptedEngine(lambda _: reply), environment, "index")
    return asyncio.run(rollouts.run(RolloutTask(ROTOR, 0, "default", 7)))


def test_in_the_mode_expand_the_words_are_recorded_and_searched_together_with_the_question(
    environment: SearchEnvironment,
) -> None:
    trajectory = roll_out_rotor("<search>flight^4  whole</search>", environment, **EXPAND)
    [turn] = trajectory.turns
    assert (turn.action, turn.query) == (ActionKind.SEARCH, "flight^4 whole")
    assert turn.hits == tuple(environment._index.search_expanded(ROTOR.question, "flight^4 whole", 3.0, 10))
    assert [hit.file for hit in turn.hits] == ["b.pdf", "a.pdf"]
    assert [hit.file for hit in trajectory.question_hits] == ["a.pdf", "b.pdf"]
    assert (turn.evidence_rank, trajectory.question_rank) == (1, 2)
    assert (trajectory.query_mode, trajectory.question_weight) == ("expand", 3.0)


def test_an_empty_search_adds_nothing_to_the_question_and_is_no_query_of_its_own(environment: SearchEnvironment) -> None:
    trajectory = roll_out_rotor("<search> </search>", environment, **EXPAND)
    [turn] = trajectory.turns
    assert (turn.action, turn.query) == (ActionKind.SEARCH, "")
    assert turn.hits == trajectory.question_hits != ()
    [turn] = roll_out_rotor("<search> </search>", environment, **REWRITE).turns
    assert (turn.action, turn.hits) == (ActionKind.INVALID, ())


def test_a_question_is_measured_by_what_nothing_added_finds_whatever_the_operator(tmp_path: Path) -> None:
    pages = [Page("a.pdf", 1, 1, "rotor"), Page("b.pdf", 2, 2, "which")]
    artifacts.write_parquet(tmp_path / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    build_index(tmp_path / "pages.parquet", tmp_path / "index", SearchConfig(operator="and"))
    environment = SearchEnvironment(Searcher(tmp_path / "index"), top_k=2, depth=10)
    assert roll_out_rotor("<search>fuel</search>", environment, **REWRITE).question_hits == ()
    trajectory = roll_out_rotor("<search></search>", environment, **EXPAND, question_words="all")
    assert trajectory.question_rank is not None
    assert trajectory.turns[0].hits == trajectory.question_hits


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
    artifacts.write_parquet(tmp_path / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    build_index(tmp_path / "pages.parquet", tmp_path / "index", SearchConfig())
    environment = SearchEnvironment(Searcher(tmp_path / "index"), top_k=3, depth=10)
    of_all, of_key = (
        roll_out_rotor("<search>flight</search>", environment, **EXPAND, question_words=words) for words in ("all", "key")
    )
    assert [sorted(hit.file for hit in rollout.question_hits) for rollout in (of_all, of_key)] == [["a.pdf", "b.pdf"], ["a.pdf"]]
    assert sorted(hit.file for hit in of_key.turns[0].hits) == ["a.pdf", "c.pdf"]
    assert (of_key.question, of_key.question_words) == (ROTOR.question, "key")
    assert roll_out_rotor("<search>flight</search>", environment, **EXPAND).question_words == "key"
    assert "The key words of the question are searched" in json.loads(of_key.messages)[0]["content"]
