"""`drag-ray search` and `drag-ray ask` with an endpoint that listens on a port."""

import json
import socket
import time
from collections.abc import Iterator

import pytest
from serve_cases import Serve, follow
from web_servers import Reply, WebServer
from web_servers import reply as reply_with
from web_servers import serve as listen

from drag_ray.cli.main import main
from drag_ray.serve import client
from drag_ray.serve.ingress.key import KEY_VARIABLE

KEY = "a-key-for-this-test-alone"
QUESTION = "How fast may the rotor turn?"


reply = follow("<search>rotor speed</search>", "<answer>340 rpm <cite>b.pdf#2</cite> <cite>z.pdf#1</cite></answer>")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


def test_a_search_lists_the_query_and_the_pages(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    with serve(reply).listen(KEY) as url:
        assert main(["search", QUESTION, "--url", url, "--top-k", "1"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "tuned adds: rotor speed"
        assert main(["search", QUESTION, "--url", f"{url}/v1/", "--top-k", "1"]) == 0  # as OpenAI's clients have it
        assert capsys.readouterr().out.splitlines() == lines
        assert lines[1].split() == ["1", "b.pdf#2", lines[1].split()[2]]
        assert "speed limit is 340 rpm" in lines[2]
        assert main(["search", QUESTION, "--url", url, "--model", "base", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["query"] == "rotor speed"
        assert main(["search", QUESTION, "--url", url, "--model", "question"]) == 0
        assert capsys.readouterr().out.startswith("the question finds:\n")
        assert main(["search", QUESTION, "--url", url, "--retrieval", "bm25", "--no-rerank"]) == 0
        capsys.readouterr()
        assert main(["search", QUESTION, "--url", url, "--retrieval", "hybrid"]) == 1
        assert "retrieval 'hybrid': the index has no vectors" in capsys.readouterr().err


def test_asking_prints_the_turns_the_answer_and_its_pages(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    with serve(reply).listen(KEY) as url:
        assert main(["ask", QUESTION, "--url", url, "--model", "base"]) == 0
        printed = capsys.readouterr().out.splitlines()
        assert printed[0] == "1. search: rotor speed"
        assert printed[-3:] == ["340 rpm", "  b.pdf#2", "  z.pdf#1 (there is no such page)"]
        assert main(["ask", QUESTION, "--url", url, "--model", "base", "--json"]) == 0
        assert [json.loads(line)["type"] for line in capsys.readouterr().out.splitlines()] == ["turn", "turn", "answer"]


def test_what_the_endpoint_refuses_is_said_in_its_words(
    serve: Serve, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(reply).listen(KEY) as url:
        for command in ("search", "ask"):
            assert main([command, QUESTION, "--url", url, "--model", "nobody"]) == 1
            assert "the model 'nobody' does not exist here" in capsys.readouterr().err
            assert main([command, QUESTION, "--url", url, "--filter", '{"department": "sales"}']) == 1
            assert "filter: the index has no metadata of documents" in capsys.readouterr().err
            with pytest.raises(SystemExit):
                main([command, QUESTION, "--url", url, "--filter", "sales"])
            assert "--filter: not JSON" in capsys.readouterr().err
        monkeypatch.delenv(KEY_VARIABLE)
        assert main(["search", QUESTION, "--url", url]) == 1
        assert "this endpoint needs a key" in capsys.readouterr().err


def test_an_address_where_nothing_listens_is_named_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert main(["search", QUESTION, "--url", url]) == 1
    assert f"{url}: no endpoint answers" in capsys.readouterr().err
    assert main(["ask", QUESTION, "--url", "localhost:8000"]) == 1
    assert "expected an address such as http://127.0.0.1:8000" in capsys.readouterr().err


ODD = [b"", b"<html>", b"null", b"[null]", b"{}", b'{"query": "a"}', b"[" * 100_000, b'{"a": ' + b"[" * 100_000, b"\xff"]


def run_against(web: WebServer, command: str, argument: str = QUESTION) -> int:
    return main([command, argument, "--url", f"http://127.0.0.1:{web.port}"])


@pytest.fixture
def web() -> Iterator[WebServer]:
    with listen() as server:
        yield server


@pytest.mark.parametrize("command", ["search", "ask"])
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_neither_key_nor_question_follows_a_redirect(
    command: str, status: str, web: WebServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with listen("127.0.0.2") as other:
        other.replies = {"/elsewhere": reply_with(b"{}")}
        target = f"http://127.0.0.2:{other.port}/elsewhere"
        web.replies[f"/v1/{command}"] = reply_with(status=status, Location=target)
        assert run_against(web, command) == 1
        assert other.requests == []
    said = capsys.readouterr().err
    assert f"redirects ({status[:3]}) to '{target}'" in said
    assert "--url" in said
    assert KEY not in said


@pytest.mark.parametrize("body", ODD, ids=range(len(ODD)))
def test_what_is_no_answer_of_an_endpoint_is_said_to_be_none(
    body: bytes, web: WebServer, capsys: pytest.CaptureFixture[str]
) -> None:
    web.replies = {"/v1/search": reply_with(body), "/v1/ask": reply_with(b"data: " + body + b"\n\n")}
    for command in ("search", "ask"):
        assert run_against(web, command) == 1
        assert "answers otherwise than an endpoint of drag_ray" in capsys.readouterr().err


@pytest.mark.parametrize("error", [b"[" * 100_000, b"[]", b'{"error": null}', b'{"error": {"message": 5}}', b"\xff"])
def test_a_refusal_in_no_known_form_is_told_by_its_status(
    error: bytes, web: WebServer, capsys: pytest.CaptureFixture[str]
) -> None:
    web.replies = {f"/v1/{command}": reply_with(error, status="418 Teapot") for command in ("search", "ask")}
    for command in ("search", "ask"):
        assert run_against(web, command) == 1
        assert "418 Teapot" in capsys.readouterr().err


def flood(connection: socket.socket, path: str) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"x" * 65_536)


def drip(connection: socket.socket, path: str) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"\n")
        time.sleep(0.01)


@pytest.mark.parametrize("endless", [flood, drip])
def test_an_answer_has_an_end(
    endless: Reply, web: WebServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_MAX_BYTES", 1_000_000)
    monkeypatch.setattr(client, "_LONGEST_S", 0.5)
    web.replies = {f"/v1/{command}": endless for command in ("search", "ask")}
    for command in ("search", "ask"):
        assert run_against(web, command) == 1
        assert "an answer of more than" in capsys.readouterr().err


def test_nothing_that_comes_from_elsewhere_commands_the_terminal(web: WebServer, capsys: pytest.CaptureFixture[str]) -> None:
    bad = "\x1b]0;owned\x07\x9b31m\u202e"
    page = {"rank": 1, "file": f"{bad}.pdf", "page_number": 1, "score": 1.0, "snippet": bad}
    found = {"query": bad, "query_mode": "rewrite", "model": bad, "pages": [page]}
    web.replies = {"/v1/search": reply_with(json.dumps(found).encode())}
    web.replies["/v1/ask"] = reply_with(json.dumps({"error": {"message": bad}}).encode(), status="400 Bad")
    assert run_against(web, "search") == 0
    assert run_against(web, "ask") == 1
    assert main(["search", QUESTION, "--json", "--url", f"http://127.0.0.1:{web.port}"]) == 0
    shown = capsys.readouterr()
    assert not set("\x1b\x07\x9b\u202e") & set(shown.out + shown.err)
    assert json.loads(shown.out.splitlines()[-1]) == found
