"""Searches whose reply is chosen among several, with a real index, the chooser of the evaluation and a scripted engine."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from chooser_cases import MANY_WORDS, build_gain_model, finish_chooser
from pydantic import ValidationError
from serve_cases import TRAINED, Served

from drag_ray import artifacts
from drag_ray.agent.prompts import Prompts
from drag_ray.baselines.best_of import BestOf, BestOfConfig
from drag_ray.baselines.best_reply import BestReply
from drag_ray.baselines.candidates import CandidateReader
from drag_ray.baselines.gain_model import GainModel, write_gain_model
from drag_ray.engine.generate import Request
from drag_ray.engine.sampling import PRESETS
from drag_ray.engine.scripted import ScriptedEngine
from drag_ray.errors import ArtifactError, DamageError, ServeError
from drag_ray.evaluate.chooser import CHOOSER_DIR_NAME
from drag_ray.search.searcher import Searcher
from drag_ray.serve.best_of import ReplyChooser, resolve_best_of
from drag_ray.serve.config import ServeConfig
from drag_ray.serve.question_weights import resolve_question_weights

QUESTION = "How fast may the rotor turn?"
REPLIES = ("fuel", "340 rpm flight", "oil")


def write_in_turn(replies: tuple[str, ...] = REPLIES) -> Any:
    waiting = iter(replies)
    return lambda request: f"<search>{next(waiting)}</search>"


@pytest.fixture
def serve(searcher: Searcher, tmp_path: Path) -> Any:
    def start(model: GainModel = MANY_WORDS, **others: Any) -> Served:
        artifacts.write_json(tmp_path / "drag_ray_agent.json", TRAINED.model_dump(mode="json"))
        chooser = ReplyChooser(BestOf(BestOfConfig(samples=len(REPLIES)), model), searcher)
        return Served(searcher, tmp_path, write_in_turn(), chooser=chooser, **others)

    return start


def list_pages(answer: Any) -> list[tuple[str, int, float]]:
    return [(page["file"], page["page_number"], page["score"]) for page in answer["pages"]]


def test_a_search_takes_the_reply_that_the_evaluation_would_take_and_says_what_that_cost(serve: Any, searcher: Searcher) -> None:
    served = serve()
    answer = served.post("/v1/search", question=QUESTION, seed=5).json()
    engine = ScriptedEngine(write_in_turn())
    agent = TRAINED.agent
    request = Request(
        tuple(Prompts(agent).opening(QUESTION)), PRESETS["default"], agent.max_tokens, 6, ("</search>", "</answer>")
    )
    best = BestReply(engine, agent, CandidateReader(searcher, agent), len(REPLIES), MANY_WORDS)
    choice = asyncio.run(best(request, QUESTION))
    assert answer["query"] == "340 rpm flight"
    assert list_pages(answer) == [(hit.file, hit.page_number, hit.score) for hit in choice.hits]
    assert [one.sampling for one in served.engine.requests] == [PRESETS[name] for name in ("greedy", "default", "default")]
    assert served.drawn_with == ["tuned"] * len(REPLIES)
    cost = answer["best_of"]
    assert (cost["replies"], cost["completion_tokens"]) == (len(REPLIES), choice.num_drawn_tokens)
    assert 0 < cost["search_ms"] < 60_000
    assert served.recorded[0][2]["completion_tokens"] == choice.num_drawn_tokens


def test_the_question_stays_where_no_gain_is_expected(serve: Any, searcher: Searcher) -> None:
    answer = serve(GainModel()).post("/v1/search", question=QUESTION).json()
    asked = CandidateReader(searcher, TRAINED.agent).search_question(QUESTION)
    assert answer["query"] == ""
    assert list_pages(answer) == [(hit.file, hit.page_number, hit.score) for hit in asked]
    assert answer["best_of"]["replies"] == len(REPLIES)


@pytest.mark.parametrize("other", [{"best_of": False}, {"top_k": TRAINED.agent.depth + 1}])
def test_a_search_that_does_without_or_wants_more_pages_takes_its_one_reply(serve: Any, other: dict[str, Any]) -> None:
    served = serve()
    answer = served.post("/v1/search", question=QUESTION, **other).json()
    assert (answer["query"], answer["best_of"], len(served.engine.requests)) == ("fuel", None, 1)


def test_who_insists_on_what_cannot_be_had_is_told_why(serve: Any, searcher: Searcher, tmp_path: Path) -> None:
    served = serve()
    refused = served.post("/v1/search", question=QUESTION, best_of=True, top_k=TRAINED.agent.depth + 1)
    assert refused.status_code == 400
    assert "at most 10 pages" in refused.json()["error"]["message"]
    assert not served.engine.requests
    without = Served(searcher, tmp_path, write_in_turn())
    assert "serve.best_of" in without.post("/v1/search", question=QUESTION, best_of=True).json()["error"]["message"]
    assert without.post("/v1/search", question=QUESTION).json()["best_of"] is None
    assert served.post("/v1/search", question=QUESTION, best_of=8).status_code == 400


def test_an_endpoint_takes_what_the_evaluation_has_fitted(tmp_path: Path) -> None:
    config = ServeConfig(best_of=5, evaluation=finish_chooser(tmp_path / "evaluate", MANY_WORDS))
    best_of = resolve_best_of(config, None)
    assert best_of == BestOf(BestOfConfig(samples=5), MANY_WORDS)
    assert resolve_question_weights(config, ["tuned"]) == {}  # it has looked for none, and need not have
    assert resolve_best_of(ServeConfig(), None) is None


def test_an_evaluation_that_has_fitted_nothing_or_other_things_is_refused_before_an_engine_starts(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="best_of 2 needs the evaluation"):
        ServeConfig(best_of=2)
    with pytest.raises(ValidationError, match="best_of 9 is above max_sequences 8"):
        ServeConfig(best_of=9, max_sequences=8, evaluation=tmp_path)
    with pytest.raises(ArtifactError, match=r"python jobs/evaluate\.py"):
        resolve_best_of(ServeConfig(best_of=2, evaluation=tmp_path / "nowhere"), None)
    nothing = ServeConfig(best_of=2, evaluation=finish_chooser(tmp_path / "nothing", None))
    with pytest.raises(ServeError, match="has fitted nothing to choose by"):
        resolve_best_of(nothing, None)
    rewards = finish_chooser(tmp_path / "rewards", build_gain_model("reward", 1.0, has_rewards=True))
    with pytest.raises(ServeError, match="reads rewards"):
        resolve_best_of(ServeConfig(best_of=2, evaluation=rewards), None)
    changed = finish_chooser(tmp_path / "changed", MANY_WORDS)
    write_gain_model(changed / CHOOSER_DIR_NAME, build_gain_model("rbo", 1.0))
    with pytest.raises(DamageError):
        resolve_best_of(ServeConfig(best_of=2, evaluation=changed), None)
