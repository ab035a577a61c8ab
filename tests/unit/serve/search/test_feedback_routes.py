"""/v1/feedback, search ids, /v1/page and the page for people, behind the guard, with a real index and a scripted engine."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serve_cases import Served
from starlette.testclient import TestClient

from drag_ray.feedback.config import FeedbackConfig
from drag_ray.feedback.events import Mark, ShownSearch
from drag_ray.feedback.log import make_secret, read_events
from drag_ray.search.searcher import Searcher
from drag_ray.serve.search import feedback_service
from drag_ray.serve.search.feedback_service import FeedbackService, Sender
from drag_ray.serve.search.messages import FeedbackRequest
from drag_ray.types import Evidence

QUESTION = "How fast may the rotor turn?"
DAY_S = 86_400
Start = Callable[..., Served]


class Clock:
    now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def start(searcher: Searcher, tmp_path: Path, clock: Clock) -> Start:
    """Starts an endpoint that takes feedback; several have one folder."""
    make_secret(tmp_path / "feedback")

    def start(folder: Path = tmp_path / "feedback", **options: Any) -> Served:
        feedback = FeedbackService(folder, FeedbackConfig(enabled=True, **options), clock)
        reply = "<search>rotor</search>"
        return Served(
            searcher, tmp_path, lambda request: reply if len(request.messages) < 3 else "<answer>340</answer>", feedback=feedback
        )

    return start


def say(served: Served, answer: dict[str, Any], place: int = 0, **more: Any) -> Any:
    page = answer["pages"][place]
    body = {"search_id": answer["search_id"], "action": "opened", "file": page["file"], "page_number": page["page_number"]}
    return served.post("/v1/feedback", **{**body, **more})


def test_a_search_and_what_is_said_of_it_are_kept_whichever_engine_is_told(start: Start, tmp_path: Path) -> None:
    first, second = start(), start()
    answer = first.post("/v1/search", question=QUESTION, model="base", session="me@example.com").json()
    assert [page["file"] for page in answer["pages"]] == ["a.pdf", "b.pdf"]
    told = say(second, answer, 1, action="right", rank=2)
    assert (told.status_code, told.json()) == (200, {"object": "feedback", "action": "right", "rank": 2})
    kept = {type(event): event for event in read_events(tmp_path / "feedback")}
    search, mark = kept[ShownSearch], kept[Mark]
    assert isinstance(search, ShownSearch)
    assert isinstance(mark, Mark)
    assert (search.question, search.query, search.model) == (QUESTION, "rotor", "base")
    assert search.pages == (Evidence("a.pdf", 1), Evidence("b.pdf", 2))
    assert (mark.search, mark.action, mark.page, mark.rank, mark.client) == (
        search.id,
        "right",
        search.pages[1],
        2,
        search.client,
    )
    written = "".join(path.read_text() for path in (tmp_path / "feedback").glob("*.jsonl"))
    assert "127.0.0.1" not in written
    assert "example.com" not in written


def test_an_answer_of_the_agent_has_an_id_for_the_pages_of_its_turns_also_in_a_stream(start: Start) -> None:
    served = start()
    whole = served.post("/v1/ask", question=QUESTION, model="base").json()
    shown = {"pages": whole["turns"][0]["pages"], "search_id": whole["search_id"]}
    assert say(served, shown, action="right").json()["rank"] == 1
    stream = served.post("/v1/ask", question=QUESTION, model="base", stream=True).text
    last = json.loads(stream.strip().split("\n\n")[-1].partition("data: ")[2])
    assert say(served, {**shown, "search_id": last["search_id"]}).status_code == 200


def test_without_text_only_ids_and_pages_are_kept(start: Start, tmp_path: Path) -> None:
    served = start(text=False)
    answer = served.post("/v1/search", question=QUESTION, model="base").json()
    assert say(served, answer).status_code == 200
    written = "".join(path.read_text() for path in (tmp_path / "feedback").glob("*.jsonl"))
    assert "rotor" not in written
    assert "a.pdf" in written


def test_a_client_cannot_name_a_page_that_was_not_shown_nor_a_search_that_was_not_made(
    start: Start, clock: Clock, tmp_path: Path
) -> None:
    served = start()
    answer = served.post("/v1/search", question=QUESTION, model="base").json()
    make_secret(tmp_path / "other")
    foreign = start(tmp_path / "other").post("/v1/search", question=QUESTION, model="base").json()
    refusals: list[tuple[dict[str, Any], int, str]] = [
        ({"file": "c.pdf", "page_number": 1}, 400, "'c.pdf', page 1: the search did not show it."),
        ({"page_number": 7}, 400, "the search did not show it."),
        ({"rank": 2}, 400, "rank 2: the search showed 'a.pdf', page 1 at rank 1."),
        ({"search_id": "x"}, 404, "search_id 'x': no search of this endpoint"),
        ({"search_id": foreign["search_id"]}, 404, "no search of this endpoint"),
        ({"search_id": answer["search_id"][:-1]}, 404, "no search of this endpoint"),
        ({"search_id": "x" * 601}, 400, "search_id: "),
        ({"action": "liked"}, 400, "action: "),
        ({"action": "asked_again"}, 404, "next_search_id '': no search"),
        ({"page_number": 10**30}, 400, "page_number: "),
        ({"text": "my telephone number"}, 400, "text: Extra inputs are not permitted"),
        ({"file": "a" * 5000}, 413, "at most 4,096 bytes"),
    ]
    for more, status, complaint in refusals:
        refused = say(served, answer, **more)
        assert refused.status_code == status, more
        assert complaint in refused.json()["error"]["message"]
    clock.now += DAY_S + 1
    assert (say(served, answer).status_code, say(served, answer).json()["error"]["message"][-40:]) == (
        410,
        "expired. Feedback is taken for 24 hours."[-40:],
    )
    assert [type(event) for event in read_events(tmp_path / "feedback")] == [ShownSearch]


def test_a_question_that_is_asked_again_names_its_next_search(start: Start, tmp_path: Path) -> None:
    served = start()
    first, second = (served.post("/v1/search", question=text, model="base").json()["search_id"] for text in ("rotor?", "rotor!"))
    assert served.post("/v1/feedback", search_id=first, action="asked_again", next_search_id=second).status_code == 200
    [mark] = [event for event in read_events(tmp_path / "feedback") if isinstance(event, Mark)]
    assert (mark.search, mark.next, mark.page) == (first[:12], second[:12], None)


async def test_marks_beyond_the_limits_are_refused_and_take_no_room(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = start()
    answers = [served.post("/v1/search", question=QUESTION, model="base").json() for _ in range(3)]
    statuses = [say(served, answers[0]).status_code for _ in range(60)]
    assert statuses == [200] * 50 + [429] * 10
    assert say(served, answers[1]).status_code == 200
    monkeypatch.setattr(feedback_service, "MARKS_PER_CLIENT", 52)
    assert [say(served, answers[2]).status_code for _ in range(5)] == [200] + [429] * 4
    refused = say(served, answers[2])
    assert "of a client in an hour" in refused.json()["error"]["message"]
    assert refused.headers["retry-after"] == "3600"
    assert len([event for event in read_events(tmp_path / "feedback") if isinstance(event, Mark)]) == 52
    other = FeedbackRequest(search_id=answers[2]["search_id"], action="opened", file="a.pdf", page_number=1)
    service: FeedbackService = served.app.state.feedback
    assert (await service.take(other, Sender("10.0.0.9"))).rank == 1


def test_a_search_is_answered_also_where_it_cannot_be_kept(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = start()
    answer = served.post("/v1/search", question=QUESTION, model="base").json()
    for path in (tmp_path / "feedback").glob("*.jsonl"):
        path.unlink()
        path.mkdir()
    unkept = served.post("/v1/search", question=QUESTION, model="base")
    assert (unkept.status_code, unkept.json()["search_id"], len(unkept.json()["pages"])) == (200, "", 2)
    assert "a search is not kept" in caplog.text
    assert say(served, answer).status_code == 503


def test_no_feedback_is_taken_and_no_id_given_where_nobody_has_asked_for_it(searcher: Searcher, tmp_path: Path) -> None:
    served = Served(searcher, tmp_path, lambda _: "<search>rotor</search>")
    answer = served.post("/v1/search", question=QUESTION, model="base").json()
    assert answer["search_id"] == ""
    assert say(served, answer).status_code == 404


def test_the_page_is_closed_to_everything_from_elsewhere_and_holds_nothing_of_the_collection(start: Start) -> None:
    client = TestClient(start().guard("a-key-of-a-test"), base_url="http://search.example")
    page = client.get("/")
    [nonce] = set(re.findall(r'nonce="([^"]+)"', page.text))
    assert page.headers["content-security-policy"] == (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert page.headers["cache-control"] == "no-store"
    assert nonce not in client.get("/").text
    assert re.findall(r"(?:src|href)=|https?://|url\(", page.text) == []
    assert client.post("/v1/page", json={"file": "a.pdf", "page_number": 1}).status_code == 401
    assert client.post("/v1/feedback", json={}).status_code == 401


def test_a_page_of_the_index_is_read_by_its_name(start: Start) -> None:
    served = start()
    read = served.post("/v1/page", file="c.pdf", page_number=1, edge=100)
    assert read.json() == {"file": "c.pdf", "page_number": 1, "total_pages": 1, "text": "fuel and oil", "image": ""}
    assert served.post("/v1/page", file="../secret", page_number=1).status_code == 404
    assert served.post("/v1/page", file="c.pdf", page_number=1, edge=10**6).status_code == 400
