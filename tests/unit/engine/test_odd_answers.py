"""Answers that are not in OpenAI's plainest form: read, or the failure of one rollout or verdict; paid for either way."""

import asyncio
import gzip
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_server import Answer, serve_chat
from web_servers import Reply, WebServer, reply, serve

from drag_ray.agent.judge import AnswerCase
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.endpoints.endpoint import EndpointEngine
from drag_ray.engine.endpoints.spending import Spending
from drag_ray.engine.generate import Generation, Request, Usage
from drag_ray.engine.sampling import PRESETS
from drag_ray.errors import BudgetError, RolloutError
from drag_ray.rollout.config import JudgeConfig
from drag_ray.rollout.judgements import JUDGEMENTS_NAME, judge_cases, read_judgements

STOPS = ("</search>", "</answer>")
KEY = "a-secret-key"
SEARCH = "<search>rotor speed</search>"


def build_body(message: dict[str, Any] | None = None, usage: Any = None, **choice: Any) -> bytes:
    message = {"role": "assistant", "content": SEARCH, **(message or {})}
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8} if usage is None else usage
    return json.dumps({"choices": [{"message": message, "finish_reason": "stop", **choice}], "usage": usage}).encode()


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def build_config(address: str, **endpoint: Any) -> EngineConfig:
    endpoint = {"address": address, "key_variable": "ODD_KEY", "max_retries": 0, "max_requests": 4, **endpoint}
    return EngineConfig.model_validate({"backend": "openai", "model": "teacher", "endpoint": endpoint})


def draw(address: str, folder: Path, max_tokens: int = 64, **endpoint: Any) -> Generation:
    config = build_config(address, **endpoint)
    engine = EndpointEngine(config, None, Spending(folder / "spending.jsonl", config.endpoint))
    request = Request(({"role": "user", "content": "How fast?"},), PRESETS["greedy"], max_tokens, 7, STOPS)

    async def ask() -> Generation:
        try:
            return await engine(request)
        finally:
            await engine.close()

    return asyncio.run(ask())


def read_spending(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "spending.jsonl").read_text().splitlines()]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD_KEY", KEY)


READ = {
    "parts": ({"content": [text("<search>rotor "), text("speed</search>")]}, SEARCH),
    "a thinking part": (
        {"content": [{"type": "thinking", "thinking": [text("look for "), text("speed")]}, text(SEARCH)]},
        f"<think>look for speed</think>\n{SEARCH}",
    ),
    "a thinking part of text": (
        {"content": [{"type": "thinking", "thinking": "Hm.", "closed": True}, text("<search>rotor speed")]},
        f"<think>Hm.</think>\n{SEARCH}",
    ),
    "reasoning": ({"reasoning": "Hm."}, f"<think>Hm.</think>\n{SEARCH}"),
    "reasoning_content": ({"reasoning": None, "reasoning_content": "Hm."}, f"<think>Hm.</think>\n{SEARCH}"),
    "no content": ({"content": None}, ""),
    "no parts": ({"content": []}, ""),
    "no calls": ({"tool_calls": []}, SEARCH),
    "half a pair of surrogates": ({"content": "<search>rotor speed\ud83d</search>"}, SEARCH),
}


@pytest.mark.parametrize("case", READ)
def test_what_can_be_read_is_read(case: str, tmp_path: Path) -> None:
    message, expected = READ[case]
    with serve_chat(lambda body, number: Answer(raw=build_body(message))) as served:
        generation = draw(served.address, tmp_path)
    assert (generation.text, generation.usage) == (expected, Usage(5, 3))
    assert read_spending(tmp_path) == [{"prompt_tokens": 5, "completion_tokens": 3, "estimated": False}]


ODD_USAGES = [
    {"prompt_tokens": None, "completion_tokens": 3},
    {"prompt_tokens": -1, "completion_tokens": 3},
    {"prompt_tokens": float("nan"), "completion_tokens": 3},
    {"prompt_tokens": 1e300, "completion_tokens": 3},
    {"prompt_tokens": 10**300, "completion_tokens": 3},
    {"prompt_tokens": "5", "completion_tokens": 3},
    {"prompt_tokens": True, "completion_tokens": 3},
    {"prompt_tokens": [5], "completion_tokens": 3},
    {"prompt_tokens": 5},
    {},
    [],
    "none",
    0,
]
ODD = [
    *(build_body(usage=usage) for usage in ODD_USAGES),
    b"",
    b"<html><body>Sign in</body></html>",
    b"\x1f\x8b\xff\x00",
    build_body()[:-20],
    b"null",
    b"[null]",
    b"[" * 100_000,
    b'{"choices": ' + b"[" * 100_000,
    b'{"choices":[{"message":{"content":' + b"[" * 900 + b"]" * 900 + b"}}]}",
    b'{"choices": []}',
    b'{"choices": [null]}',
    b'{"choices": [{}]}',
    b'{"choices": {"0": 1}}',
    *(build_body({"content": content}) for content in (7, {"text": "a"}, [None], ["a"], [{"type": "text"}], [{"type": "image"}])),
    build_body({"content": [{"type": "text", "text": 5}]}),
    build_body({"content": [{"type": "thinking", "thinking": [[]]}]}),
    build_body({"reasoning": {"text": "a"}}),
    build_body({"content": None, "tool_calls": [{"function": {"name": "search"}}]}),
    build_body(finish_reason=None),
    build_body(finish_reason=["stop"]),
    build_body(finish_reason="content_filter"),
]


@pytest.mark.seconds
@pytest.mark.parametrize("number", range(len(ODD)))
def test_any_other_answer_is_the_failure_of_its_rollout_and_is_paid_for(number: int, tmp_path: Path) -> None:
    with (
        serve_chat(lambda body, _: Answer(raw=ODD[number])) as served,
        pytest.raises(RolloutError, match=served.address) as raised,
    ):
        draw(served.address, tmp_path)
    assert len(str(raised.value)) < 1000
    [spent] = read_spending(tmp_path)
    told = {"prompt_tokens": 5, "completion_tokens": 3, "estimated": False}
    assert spent in (told, {"prompt_tokens": 4, "completion_tokens": 64, "estimated": True})
    assert spent["estimated"] == (b'"total_tokens": 8' not in ODD[number] or ODD[number] == build_body()[:-20])


def test_a_budget_holds_where_no_answer_says_what_it_cost(tmp_path: Path) -> None:
    with serve_chat(lambda body, number: Answer(raw=b"<html>")) as served:
        terms = {"completion_price": 1e6, "budget": 100}
        for _ in range(2):
            with pytest.raises(RolloutError):
                draw(served.address, tmp_path, **terms)
        with pytest.raises(BudgetError, match="have cost 128"):
            draw(served.address, tmp_path, **terms)
        assert len(served.asked) == 2
        with pytest.raises(RolloutError):
            draw(served.address, tmp_path, omits=["max_tokens"], parameters={"max_completion_tokens": 500})
    assert read_spending(tmp_path)[-1]["completion_tokens"] == 500


def test_a_judge_whose_answers_are_odd_gives_no_verdict_on_these_and_is_asked_again(tmp_path: Path) -> None:
    cases = [AnswerCase(f"question {number}", ("340 rpm",), "fast") for number in range(len(ODD))]
    with serve_chat(lambda body, number: Answer(raw=ODD[number])) as served:
        config = JudgeConfig(engine=build_config(served.address))
        judge_cases(cases, config, tmp_path, max_failure_rate=1)
    assert read_judgements(tmp_path).by_case == {}
    assert len(read_spending(tmp_path)) == len(ODD)
    (tmp_path / JUDGEMENTS_NAME).write_bytes(b'[null]\n{"verdict": 5}\n\xff\n' + b"[" * 100_000 + b"\n")
    with serve_chat(lambda body, number: Answer('{"verdict": "correct"}')) as served:
        config = JudgeConfig(engine=build_config(served.address))
        judge_cases(cases, config, tmp_path, max_failure_rate=0)
    assert [read_judgements(tmp_path).find_score(case) for case in cases] == [1.0] * len(cases)


def test_an_error_is_told_in_short_and_without_the_key_that_it_repeats(tmp_path: Path) -> None:
    refusal = Answer(status=401, error=f"no such key: {KEY} {'x' * 10_000}")
    with (
        serve_chat(lambda body, number: refusal) as served,
        pytest.raises(RolloutError, match=r"answered 401: .*no such key: \[key\]") as raised,
    ):
        draw(served.address, tmp_path)
    assert len(str(raised.value)) < 1000
    page = Answer(raw=f"<html>{KEY}".encode())
    with serve_chat(lambda body, number: page) as served, pytest.raises(RolloutError, match=r"\[key\]"):
        draw(served.address, tmp_path)


def drip(connection: socket.socket, path: str) -> None:
    """An answer that goes on for ever, a byte at a time."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.02)


def flood(connection: socket.socket, path: str) -> None:
    """An answer that goes on for ever, as fast as it is taken."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    while True:
        connection.sendall(b" " * 65_536)


BOMB = gzip.compress(b" " * 419_000_000, 9)
UNBOUNDED: dict[str, tuple[Reply, str]] = {
    "drips": (drip, r"no whole answer within 0\.5 s"),
    "floods": (flood, "an answer of more than 16,777,216 bytes"),
    "a bomb": (reply(BOMB, Content_Encoding="gzip"), "an answer of more than 16,777,216 bytes"),
    "a bomb as an error": (
        reply(BOMB, status="400 Bad Request", Content_Encoding="gzip"),
        "an answer of more than 16,777,216 bytes",
    ),
    "two packings": (
        reply(gzip.compress(BOMB), Content_Encoding="gzip, gzip"),
        "an answer of more than 16,777,216 bytes",
    ),
    "not packed": (reply(b"{}", Content_Encoding="gzip"), "an answer that cannot be unpacked"),
}


@pytest.fixture
def web() -> Iterator[WebServer]:
    with serve() as server:
        yield server


@pytest.mark.parametrize("case", UNBOUNDED)
def test_an_answer_has_an_end_is_asked_for_once_and_counts(case: str, web: WebServer, tmp_path: Path) -> None:
    web.replies["/v1/chat/completions"], words = UNBOUNDED[case]
    started = time.monotonic()
    with pytest.raises(RolloutError, match=f"http://127.0.0.1:{web.port}/v1 gave {words}"):
        draw(f"http://127.0.0.1:{web.port}/v1", tmp_path, timeout_s=0.5 if case == "drips" else 60, max_retries=3)
    assert time.monotonic() - started < 20
    assert len(web.requests) == 1
    assert read_spending(tmp_path) == [{"prompt_tokens": 4, "completion_tokens": 64, "estimated": True}]


@pytest.mark.parametrize(
    "status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"]
)
def test_a_prompt_goes_to_no_other_address(status: str, web: WebServer, tmp_path: Path) -> None:
    with serve("127.0.0.2") as other:
        other.replies["/v1/chat/completions"] = reply(build_body(), "application/json")
        target = f"http://127.0.0.2:{other.port}/v1/chat/completions"
        web.replies["/v1/chat/completions"] = reply(status=status, Location=target)
        with pytest.raises(
            RolloutError, match=rf"/v1 answered {status[:3]}: a redirect to '{target}', which no prompt is sent to"
        ):
            draw(f"http://127.0.0.1:{web.port}/v1", tmp_path, max_retries=3)
        assert (len(web.requests), other.requests) == (1, [])


def test_a_packed_answer_within_the_limits_is_read(web: WebServer, tmp_path: Path) -> None:
    web.replies["/v1/chat/completions"] = reply(gzip.compress(build_body()), "application/json", Content_Encoding="gzip")
    assert draw(f"http://127.0.0.1:{web.port}/v1", tmp_path).text == SEARCH
