"""`drag-ray search` and `drag-ray ask` with an endpoint that listens on a port."""

import json
import socket
from typing import Any

import pytest
from serve_cases import Serve

from drag_ray.cli import main
from drag_ray.serve.key import KEY_VARIABLE

KEY = "a-key-for-this-test-alone"
QUESTION = "How fast may the rotor turn?"


def reply(request: Any) -> str:
    turn = sum(message["role"] == "assistant" for message in request.messages)
    return ("<search>rotor speed</search>", "<answer>340 rpm <cite>b.pdf#2</cite> <cite>z.pdf#1</cite></answer>")[turn]


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
