"""A trial on an endpoint: who answers, whose pages are shown, what is kept, and what a failing challenger costs."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serve_cases import Served

from drag_ray.agent.config import AgentConfig
from drag_ray.engine.generate import Request
from drag_ray.errors import ConfigError, ServeError
from drag_ray.feedback.config import FeedbackConfig, TrialConfig
from drag_ray.feedback.events import ShadowRanks, ShownSearch
from drag_ray.feedback.ledger import Ledger, Trial, begin_trial, locate
from drag_ray.feedback.log import make_secret, read_events
from drag_ray.feedback.trial import promote, roll_back
from drag_ray.search.searcher import Searcher
from drag_ray.serve.config import ServeConfig
from drag_ray.serve.search import trials
from drag_ray.serve.search.champions import Champions
from drag_ray.serve.search.feedback_service import FeedbackService, Sender
from drag_ray.serve.search.messages import SearchRequest
from drag_ray.serve.trial_settings import open_trial

QUESTION = "How fast may the rotor turn?"
Start = Callable[..., Served]


def reply(_: Request) -> str:
    return "<search>fuel oil speed</search>"


@pytest.fixture
def start(searcher: Searcher, tmp_path: Path) -> Start:
    """Starts an endpoint with a trial of the base model against the question alone, in the options given."""
    make_secret(tmp_path / "feedback")

    def start(script: Callable[[Request], str] = reply, share: float = 1.0, **options: Any) -> Served:
        config = TrialConfig.model_validate({"challenger": "base", "champion": "question"} | options)
        trial = begin_trial(Ledger(tmp_path), config, "tuned", lambda _: "")
        ticks = iter(range(0, 10_000, 10))  # each request looks at the ledger
        champions = Champions(tmp_path, trial, lambda: float(next(ticks)))
        feedback = FeedbackService(tmp_path / "feedback", FeedbackConfig(enabled=True))
        return Served(searcher, tmp_path, script, feedback=feedback, champions=champions, share=share)

    return start


def read_searches(folder: Path) -> list[ShownSearch]:
    events = [event for event in read_events(folder / "feedback") if isinstance(event, ShownSearch)]
    return sorted(events, key=lambda event: event.time)


def list_files(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [page["file"] for page in answer.json()["pages"]]


def test_pages_of_both_are_shown_and_their_teams_kept_and_not_told(start: Start, tmp_path: Path) -> None:
    served = start()
    alone = {model: list_files(served.post("/v1/search", question=QUESTION, model=model)) for model in ("question", "base")}
    assert alone["question"] != alone["base"]
    answer = served.post("/v1/search", question=QUESTION, model="champion")
    assert set(list_files(answer)) <= {file for files in alone.values() for file in files}
    assert [page["rank"] for page in answer.json()["pages"]] == list(range(1, len(answer.json()["pages"]) + 1))
    assert (answer.json()["model"], "team" in answer.text.lower()) == ("question", False)
    *named, drawn = read_searches(tmp_path)
    assert all(search.part is None for search in named)
    assert drawn.part
    assert (len(drawn.part.teams), set(drawn.part.teams) & {"A", "B"}) == (len(drawn.pages), {"A", "B"})
    assert served.post("/v1/search", question=QUESTION, retrieval="bm25").status_code == 200
    assert read_searches(tmp_path)[-1].part is None  # it says itself how it is to be searched


def test_the_draw_is_that_of_the_search_id(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drag_ray.feedback.search_ids.secrets.token_bytes", lambda number: b"n" * number)
    served = start()
    answers = [list_files(served.post("/v1/search", question=QUESTION)) for _ in range(5)]
    assert all(answer == answers[0] for answer in answers)
    assert len({search.part and search.part.teams for search in read_searches(tmp_path)}) == 1


def test_a_challenger_that_fails_or_dawdles_costs_the_request_nothing(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Request) -> str:
        raise RuntimeError("the engine is gone")

    alone = list_files(start().post("/v1/search", question=QUESTION, model="question"))
    assert list_files(start(fail).post("/v1/search", question=QUESTION)) == alone
    monkeypatch.setattr(trials, "_PATIENCE_S", 0.05)
    slow = start()
    slow.engine = type(slow.engine)(reply, 30.0)
    began = time.perf_counter()
    assert list_files(slow.post("/v1/search", question=QUESTION)) == alone
    assert time.perf_counter() - began < 10
    assert [search.part.has_failed for search in read_searches(tmp_path) if search.part] == [True, True]


async def test_in_the_shadow_the_champion_answers_and_ranks_are_kept(start: Start, tmp_path: Path) -> None:
    served = start(mode="shadow")
    assert served.service
    service, request = served.app.state.trials, SearchRequest(question=QUESTION)
    shown = [await service.search(served.service, request, Sender("10.0.0.1")) for _ in range(2 * trials._MAX_SHADOWS)]
    while service._shadows:
        await asyncio.sleep(0.01)
    alone = await served.service.search(request.model_copy(update={"model": "question"}))
    assert all((answer.model, answer.pages) == ("question", alone.pages) for answer in shown)
    ranks = [event for event in read_events(tmp_path / "feedback") if isinstance(event, ShadowRanks)]
    assert trials._MAX_SHADOWS <= len(ranks) <= len(shown)
    assert {len(event.ranks) for event in ranks} == {len(shown[0].pages)}


def test_a_promotion_and_a_rollback_are_taken_while_the_endpoint_runs(start: Start, tmp_path: Path) -> None:
    served = start(share=1e-9)
    models = [served.post("/v1/search", question=QUESTION, model=name).json()["model"] for name in ("", "champion")]
    promote(tmp_path, is_forced=True)
    models.append(served.post("/v1/search", question=QUESTION).json()["model"])
    roll_back(tmp_path)
    models.append(served.post("/v1/search", question=QUESTION).json()["model"])
    assert models == ["question", "question", "base", "question"]
    assert served.post("/v1/ask", question=QUESTION).status_code == 200  # an agent needs a model: the default one
    assert read_searches(tmp_path)[-1].part is None


def test_a_client_can_neither_promote_nor_say_whose_a_page_is(start: Start, tmp_path: Path) -> None:
    served = start()
    answer = served.post("/v1/search", question=QUESTION, session="s1").json()
    mark = {
        "search_id": answer["search_id"],
        "action": "opened",
        **{key: answer["pages"][0][key] for key in ("file", "page_number")},
    }
    for more in ({"team": "B"}, {"part": {"trial": "x", "teams": "B"}}):
        assert served.post("/v1/feedback", **mark, **more).status_code == 400
        assert served.post("/v1/search", question=QUESTION, **more).status_code == 400
    assert served.post("/v1/trial", promote=True).status_code == 404
    assert not Ledger(tmp_path).changes


def open_with(tmp_path: Path, **options: Any) -> Trial | None:
    config = ServeConfig.model_validate({"feedback": {"enabled": True}, "trial": options})
    return open_trial(config, tmp_path, {}, {"base": AgentConfig()})


def test_what_cannot_be_tried_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"trial.challenger needs feedback.enabled"):
        ServeConfig.model_validate({"trial": {"challenger": "base"}})
    with pytest.raises(ConfigError, match=r"serve.trial.challenger 'tuned': not served. Served are base, and 'question'"):
        open_with(tmp_path, challenger="tuned")
    with pytest.raises(ConfigError, match=r"serve.trial.rerank: nothing ranks here. Name serve.rerank.model"):
        open_with(tmp_path, challenger="question", rerank=True)
    with pytest.raises(ConfigError, match=r"serve.trial.reranker 'base': no served model that puts candidates in order"):
        open_with(tmp_path, challenger="question", reranker="base")
    assert not locate(tmp_path).exists()
    with pytest.raises(ValueError, match="'champion' the champion; choose another name"):
        ServeConfig(served_name="champion")


def test_a_champion_that_is_not_served_any_more_is_named(tmp_path: Path) -> None:
    begin_trial(Ledger(tmp_path), TrialConfig(challenger="tuned", champion="base"), "base", lambda _: "")
    make_secret(tmp_path / "feedback")
    promote(tmp_path, is_forced=True)
    with pytest.raises(ServeError, match=r"the champion is tuned, and 'tuned' is not served. .* --rollback"):
        open_with(tmp_path)
    roll_back(tmp_path)
    assert open_with(tmp_path) is None
