"""/v1/search and /v1/ask behind the guard, with a real index and a scripted engine."""

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from otlp_receiver import read_attributes, receive_spans
from serve_cases import LIMITS, OWN, TRAINED, Serve, Served, follow

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.agent.record import RECORD_NAME, AgentRecord, write_record
from drag_ray.agent.spans import RolloutTracer
from drag_ray.cluster.telemetry import TelemetryConfig
from drag_ray.engine.generate import Request
from drag_ray.engine.sampling import PRESETS
from drag_ray.errors import EngineDiedError, PromptTooLongError, RolloutError
from drag_ray.search.searcher import Searcher
from drag_ray.serve.ingress.limits import ENGINE_HAS_DIED, Limits, RefusalError
from drag_ray.serve.search.messages import AskRequest

QUESTION = "How fast may the rotor turn?"


def search_for(query: str) -> Any:
    return lambda request: f"<search>{query}</search>"


def read_events(text: str) -> list[tuple[str, dict[str, Any]]]:
    events = [event.split("\n") for event in text.strip().split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in events]


def test_a_search_asks_the_adapter_as_it_was_trained_and_adds_to_the_question(serve: Serve, searcher: Searcher) -> None:
    served = serve(search_for("limit^2"))
    answer = served.post("/v1/search", question=QUESTION).json()
    [request] = served.engine.requests
    assert list(request.messages) == Prompts(TRAINED.agent).opening(QUESTION)
    assert (request.sampling, request.max_tokens, request.stop) == (PRESETS["diverse"], 7, ("</search>", "</answer>"))
    assert served.drawn_with == served.used_at_draw == ["tuned"]
    assert not served.used
    expected = searcher.search_expanded(QUESTION, "limit^2", TRAINED.agent.question_weight, TRAINED.agent.depth)
    found = [(page["rank"], page["file"], page["page_number"], page["score"]) for page in answer["pages"]]
    assert found == [(hit.rank, hit.file, hit.page_number, hit.score) for hit in expected]
    assert (answer["object"], answer["model"], answer["query"], answer["query_mode"]) == ("search", "tuned", "limit^2", "expand")
    assert "speed limit" in answer["pages"][0]["snippet"]


def test_the_base_model_is_asked_with_the_options_of_the_run_within_the_limits(serve: Serve, searcher: Searcher) -> None:
    served = serve(search_for("fuel"))
    answer = served.post("/v1/search", question=QUESTION, model="base").json()
    [request] = served.engine.requests
    assert list(request.messages) == Prompts(OWN.agent).opening(QUESTION)
    assert (request.sampling, request.max_tokens) == (PRESETS["greedy"], 40)
    assert served.drawn_with == [""]
    assert [page["file"] for page in answer["pages"]] == ["c.pdf"]


def test_the_question_alone_is_searched_without_a_model(serve: Serve, searcher: Searcher) -> None:
    served = serve(search_for("fuel"))
    answer = served.post("/v1/search", question=QUESTION, model="question").json()
    assert not served.engine.requests
    expected = searcher.search(QUESTION, OWN.agent.depth)
    found = [(page["file"], page["page_number"], page["score"]) for page in answer["pages"]]
    assert found == [(hit.file, hit.page_number, hit.score) for hit in expected]
    assert (answer["model"], answer["query"]) == ("question", None)
    assert "rotor" in answer["pages"][0]["snippet"]
    assert served.post("/v1/ask", question=QUESTION, model="question").status_code == 404


def test_a_request_may_say_how_many_pages_the_sampling_and_the_weight(serve: Serve, searcher: Searcher) -> None:
    served = serve(search_for("fuel"))
    options = {"top_k": 1, "preset": "creative", "seed": 5, "question_weight": 0.01}
    answer = served.post("/v1/search", question=QUESTION, **options).json()
    assert (
        [page["file"] for page in answer["pages"]] == [searcher.search_expanded(QUESTION, "fuel", 0.01, 1)[0].file] == ["c.pdf"]
    )
    assert served.engine.requests[0].sampling == PRESETS["creative"]
    served.post("/v1/search", question=QUESTION, preset="creative", seed=6)
    assert served.engine.requests[0].seed != served.engine.requests[1].seed


@pytest.mark.parametrize("reply", ["I do not know.", "<answer>340 rpm</answer>"])
@pytest.mark.parametrize("model", ["base", "tuned"])
def test_a_reply_without_a_search_leaves_what_the_question_finds(
    serve: Serve, searcher: Searcher, model: str, reply: str
) -> None:
    answer = serve(lambda request: reply).post("/v1/search", question=QUESTION, model=model).json()
    assert answer["query"] is None
    assert [page["file"] for page in answer["pages"]] == [hit.file for hit in searcher.search(QUESTION, 10)]
    assert len(answer["pages"]) == 2


def test_null_is_as_good_as_nothing(serve: Serve) -> None:
    fields = ("model", "preset", "seed", "question_weight", "retrieval", "rerank")
    for path, others in (("/v1/search", ("reranker", "top_k")), ("/v1/ask", ("stream", "show_images"))):
        body = {"question": QUESTION, **dict.fromkeys((*fields, *others))}
        served = serve(lambda _: "<answer>340 rpm</answer>")
        assert served.post(path, **body).json() == served.post(path, question=QUESTION).json()


def test_a_field_that_is_gone_names_its_successor(serve: Serve) -> None:
    refused = serve(lambda _: "<search>rotor</search>").post("/v1/search", question=QUESTION, best_of=True)
    assert refused.status_code == 400
    assert "best_of: no field any more: name a served model of the task rerank as reranker." in refused.json()["error"]["message"]


def test_a_reply_that_does_not_end_is_given_up(searcher: Searcher, tmp_path: Path) -> None:
    limits = Limits(LIMITS.config.model_copy(update={"max_reply_s": 0.05}))
    served = Served(searcher, tmp_path, lambda _: "<search>rotor</search>", limits=limits, delay_s=30)
    started = time.monotonic()
    for path in ("/v1/search", "/v1/ask"):
        response = served.post(path, question=QUESTION, model="base")
        assert (response.status_code, response.json()["error"]["type"]) == (504, "GatewayTimeoutError")
        assert "serve.max_reply_s, 0.05 s" in response.json()["error"]["message"]
    assert time.monotonic() - started < 10
    assert [status for _, status, _ in served.recorded] == [504, 504]


def test_asking_returns_the_answer_with_its_pages_and_those_that_do_not_exist(serve: Serve) -> None:
    cites = "<cite>b.pdf#2</cite> <cite>b.pdf#2</cite> <cite>/etc/passwd#1</cite>"
    served = serve(follow("<think>hm</think><search>rotor</search>", "what?", f"<answer>340 rpm {cites}</answer>"))
    answer = served.post("/v1/ask", question=QUESTION, model="base").json()
    assert (answer["answer"], answer["stop_reason"], answer["model"]) == ("340 rpm", "answer", "base")
    assert [(item["file"], item["page_number"], item["exists"]) for item in answer["citations"]] == [
        ("b.pdf", 2, True),
        ("/etc/passwd", 1, False),
    ]
    assert "340 rpm" in answer["citations"][0]["snippet"]
    turns = [(turn["step"], turn["action"], turn["reasoning"], turn["query"], len(turn["pages"])) for turn in answer["turns"]]
    assert turns == [(1, "search", "hm", "rotor", 1), (2, "invalid", "", "", 0), (3, "answer", "", "", 0)]
    assert [turn["reply"] for turn in answer["turns"]] == ["", "what?", ""]


def test_turns_are_streamed_and_then_the_answer(serve: Serve) -> None:
    served = serve(follow("<search>rotor</search>", "<answer>340 rpm</answer>"))
    response = served.post("/v1/ask", question=QUESTION, model="base", stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = read_events(response.text)
    assert [name for name, _ in events] == [data["type"] for _, data in events] == ["turn", "turn", "answer"]
    whole = served.post("/v1/ask", question=QUESTION, model="base").json()
    assert events[-1][1] == whole
    assert [data for _, data in events[:-1]] == whole["turns"]


def test_a_failure_between_turns_ends_the_stream_with_an_error_that_tells_nothing_of_the_machine(serve: Serve) -> None:
    def fail_later(request: Request) -> str:
        if len(request.messages) > 2:
            raise RolloutError("/a/path/of/this/machine is gone")
        return "<search>rotor</search>"

    events = read_events(serve(fail_later).post("/v1/ask", question=QUESTION, model="base", stream=True).text)
    assert [name for name, _ in events] == ["turn", "error"]
    assert events[1][1]["error"]["code"] == 500
    assert "machine" not in events[1][1]["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/search", "/v1/ask"])
@pytest.mark.parametrize(
    ("body", "status", "complaint"),
    [
        ({}, 400, "question: Value error, expected a text, or images beside it"),
        ({"question": ""}, 400, "question: Value error, expected a text, or images beside it"),
        ({"question": "", "images": []}, 400, "question: Value error, expected a text, or images beside it"),
        ({str(number): 1 for number in range(50)}, 400, "; and 41 more."),
        ({"question": 5}, 400, "question: Input should be a valid string"),
        ({"question": None}, 400, "question: Value error, expected a text"),
        ({"question": "\ud800"}, 400, "question: "),
        ({"question": "a" * 61}, 400, r"61 characters; the endpoint allows 60 \(serve.max_question_chars\)"),
        ({"question": "a", "model": "nobody"}, 404, "the model 'nobody' does not exist here"),
        ({"question": "a", "model": ["tuned"]}, 400, "model: "),
        ({"question": "a", "preset": "hot"}, 400, "preset: .*greedy"),
        ({"question": "a", "seed": -1}, 400, "seed: "),
        ({"question": "a", "question_weight": 0}, 400, "question_weight: "),
        ({"question": "a", "messages": []}, 400, r"messages: Extra inputs are not permitted\. The fields are images, question"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_the_engine_is(
    serve: Serve, path: str, body: dict[str, Any], status: int, complaint: str
) -> None:
    served = serve(search_for("rotor"))
    response = served.post(path, **body)
    assert (response.status_code, response.json()["error"]["code"]) == (status, status)
    assert re.search(complaint, response.json()["error"]["message"])
    assert served.engine.requests == []


@pytest.mark.parametrize("top_k", [0, -1, 101, 10**30, 1.5, "3", True])
def test_a_number_of_pages_that_cannot_be_is_refused(serve: Serve, top_k: Any) -> None:
    response = serve(search_for("rotor")).post("/v1/search", question="a", top_k=top_k)
    assert response.status_code == 400
    assert "top_k: " in response.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (
            PromptTooLongError("a prompt of 9 tokens does not fit"),
            400,
            "a prompt of 9 tokens does not fit. Ask a shorter question.",
        ),
        (RolloutError("secret"), 500, "the search failed; see the endpoint's log."),
        (
            EngineDiedError("secret"),
            503,
            ENGINE_HAS_DIED,
        ),
    ],
)
def test_an_engine_that_does_not_answer_is_an_error_with_a_status(
    serve: Serve, error: Exception, status: int, message: str, stream: bool
) -> None:
    def fail(request: Request) -> str:
        raise error

    for path, body in (("/v1/search", {}), ("/v1/ask", {"stream": stream})):
        response = serve(fail).post(path, question=QUESTION, model="base", **body)
        assert (response.status_code, response.json()["error"]["message"]) == (status, message)


async def test_who_hangs_up_ends_the_work_of_the_agent(serve: Serve) -> None:
    served = serve(search_for("rotor"))
    served.engine._delay_s = 0.01
    assert served.service
    answers = served.service.ask(AskRequest(question=QUESTION, model="base"))
    await anext(answers)
    await answers.aclose()
    num_requests = len(served.engine.requests)
    await asyncio.sleep(0.05)
    assert len(served.engine.requests) == num_requests < OWN.agent.max_iterations
    [(tool, status, counts)] = served.recorded
    assert (tool, status, counts["pages"], counts["queries"]) == ("ask", 499, 1, 1)


async def test_every_request_is_recorded_with_its_status_its_pages_queries_and_tokens(serve: Serve) -> None:
    def reply(request: Request) -> str:
        if "fail" in request.messages[-1]["content"]:
            raise RolloutError("gone")
        return "<search>rotor</search>" if len(request.messages) < 4 else "hm"

    def count_tokens(*requests: Request) -> int:
        """The scripted engine's tokens are bytes."""
        return sum(len(message["content"].encode()) for request in requests for message in request.messages)

    served = serve(reply)
    served.post("/v1/search", question=QUESTION)
    served.post("/v1/search", question="fail")
    served.post("/v1/ask", question=QUESTION, model="base", stream=True)
    served.post("/v1/ask", question=QUESTION, model="nobody")
    assert served.service
    await served.service.read_page("b.pdf", 2)
    with pytest.raises(RefusalError):
        await served.service.read_page("b.pdf", 1)
    searched, _, *asked = served.engine.requests
    assert [(tool, status) for tool, status, _ in served.recorded] == [
        *(("search", 200), ("search", 500), ("ask", 200), ("ask", 404), ("read_page", 200), ("read_page", 404))
    ]
    length = len("<search>rotor</search>")
    assert served.recorded[0][2] == {
        **{"pages": 2, "queries": 1},
        **{"prompt_tokens": count_tokens(searched), "completion_tokens": length},
    }
    assert served.recorded[2][2] == {
        **{"pages": 1, "queries": 1},
        **{"prompt_tokens": count_tokens(*asked), "completion_tokens": length + 2 * len("hm")},
    }
    assert [counts for _, _, counts in served.recorded[1::2]] == [{}, {}, {}]


def test_without_an_index_the_routes_say_what_to_do(serve: Serve) -> None:
    for path in ("/v1/search", "/v1/ask"):
        response = serve(search_for("rotor"), has_index=False).post(path, question=QUESTION)
        assert (response.status_code, response.json()["error"]["type"]) == (404, "NotFoundError")
        assert "python jobs/index.py" in response.json()["error"]["message"]


def test_taking_the_folder_of_a_served_adapter_away_does_not_change_how_it_is_asked(serve: Serve, tmp_path: Path) -> None:
    served = serve(search_for("fuel"))
    (tmp_path / "tuned" / RECORD_NAME).unlink()
    assert served.post("/v1/search", question=QUESTION).json()["query_mode"] == TRAINED.agent.query_mode


def test_searches_and_answers_are_told_to_a_collector(searcher: Searcher, tmp_path: Path) -> None:
    (tmp_path / "tuned").mkdir()
    write_record(tmp_path / "tuned", TRAINED)
    with receive_spans() as receiver:
        tracer = RolloutTracer(TelemetryConfig(endpoint=receiver.url), "vllm", {"drag_ray.stage": "serve"})
        served = Served(searcher, tmp_path / "tuned", search_for("rotor"), tracer=tracer)
        assert served.post("/v1/search", question=QUESTION).status_code == 200
        assert served.post("/v1/ask", question=QUESTION, model="base").status_code == 200
        asyncio.run(tracer.deliver())
        told = [
            (read_attributes(root)["gen_ai.request.model"], len(receiver.list_children(root))) for root in receiver.list_roots()
        ]
    assert told == [("tuned", 2), ("base", 2 * OWN.agent.max_iterations)]
    assert "gen_ai.conversation.id" not in read_attributes(receiver.list_roots()[0])
    assert "drag_ray.best_rank_score" not in read_attributes(receiver.list_roots()[0])


def test_an_adapter_calls_no_tool_that_the_host_does_not_name(searcher: Searcher, tmp_path: Path) -> None:
    own = AgentConfig(query_mode="rewrite", protocol="tools", tools=("search", "read_page"), max_iterations=4)
    agent = own.model_dump(mode="json") | {"tools": ["search", "visit"], "visit": {"allow_private": True}}
    (tmp_path / RECORD_NAME).write_text(json.dumps({"agent": agent}))
    script = render_call("visit", {"url": "http://127.0.0.1/?page=secret"})
    served = Served(searcher, tmp_path, lambda _: script, own=AgentRecord(agent=own))
    assert {turn["action"] for turn in served.post("/v1/ask", question=QUESTION).json()["turns"]} == {"invalid"}
    names = [function["function"]["name"] for function in served.engine.requests[0].tools]
    assert names == ["search_documents", "provide_answer"]
