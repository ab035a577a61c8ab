"""Keys that may see the documents of some groups alone: nothing of another one comes out by any route, tool or error."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import polars as pl
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from PIL import Image
from serve_cases import LIMITS, OWN, Served, follow
from small_index import open_index
from starlette.testclient import TestClient

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.agent.record import AgentRecord
from drag_ray.corpus import image_store
from drag_ray.corpus.image_store import ImageStore
from drag_ray.engine.generate import Request
from drag_ray.errors import ServeError
from drag_ray.feedback.config import FeedbackConfig
from drag_ray.feedback.log import make_secret
from drag_ray.search.metadata import Metadata
from drag_ray.search.searcher import Searcher
from drag_ray.serve.ingress.guard import FEEDBACK_ROUTES, Guard, Rules
from drag_ray.serve.ingress.key import Groups, Key, check_groups, hash_key
from drag_ray.serve.search.feedback_service import FeedbackService
from drag_ray.types import Evidence, Page

KEYS: dict[str, Groups] = {
    "a-key-of-the-sales-people": frozenset({"sales"}),
    "a-key-of-the-law-people": frozenset({"law", "board"}),
    "a-key-of-everybodys-boss": frozenset({"*"}),
    "a-key-of-nobody-at-all": frozenset({"nobody"}),
    "a-key-that-says-no-groups": None,
}
SALES, LAW, BOSS, NOBODY, UNSAID = KEYS
PAGES = [
    Page("board/merger.pdf", 1, 2, "rotor rotor rotor merger zephyrprice of the company"),
    Page("board/merger.pdf", 2, 2, "zephyrprice again, and a rotor"),
    Page("open.pdf", 1, 1, "rotor of every department"),
    Page("sales.pdf", 1, 1, "rotor prices of sales, no merger yet"),
    Page("unsaid.pdf", 1, 1, "rotor of a document that has no group"),
]
GROUPS = {"board/merger.pdf": ["board"], "open.pdf": ["sales", "law"], "sales.pdf": ["sales"], "unsaid.pdf": None}
AGENT = AgentConfig(
    query_mode="rewrite", protocol="tools", tools=("search", "read_page", "grep"), max_iterations=6, top_k=5, max_tool_errors=9
)
PROTOCOL = get_protocol("tools")
SPYING = (
    PROTOCOL.render_search("merger zephyrprice rotor"),
    render_call("read_page", {"file": "board/merger.pdf", "page": 1}),
    render_call("read_page", {"file": "board\\merger.pdf#2", "page": 2, "neighbours": 1}),
    render_call("grep", {"file": "./board/merger.pdf", "text": "zephyr"}),
    render_call("read_page", {"file": "unsaid.pdf", "page": 9}),
    PROTOCOL.render_answer("see", (Evidence("board/merger.pdf", 1), Evidence("unsaid.pdf", 1), Evidence("open.pdf", 1))),
)


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory) -> Searcher:
    return build(tmp_path_factory.mktemp("access"), PAGES)


def build(folder: Path, pages: Sequence[Page]) -> Searcher:
    groups = pl.Series(list(GROUPS.values()), dtype=pl.List(pl.String))
    table = pl.DataFrame({"file": list(GROUPS), "size": [1.0, 2.0, 3.0, 4.0]}).with_columns(group=groups)
    return open_index(folder, pages, Metadata(table, "group"))


spy = follow(*SPYING)


def serve(
    searcher: Searcher, folder: Path, own: AgentRecord = OWN, script: Callable[[Request], str] = lambda _: "rotor"
) -> Served:
    (folder / "tuned").mkdir()
    return Served(searcher, folder / "tuned", script, own=own)


def post(served: Served, key: str, path: str, **body: Any) -> Any:
    guard = Guard(served.app, Rules([hash_key(text, groups) for text, groups in KEYS.items()], LIMITS, FEEDBACK_ROUTES))
    client = TestClient(guard, headers={"Authorization": f"Bearer {key}"})
    return client.request("POST" if body else "GET", path, content=json.dumps(body) if body else None)


def list_files(answer: Any) -> set[str]:
    return {page["file"] for page in answer.json()["pages"]}


@pytest.mark.parametrize(
    ("key", "files"),
    [
        (SALES, {"open.pdf", "sales.pdf"}),
        (LAW, {"board/merger.pdf", "open.pdf"}),
        (BOSS, set(GROUPS)),
        (NOBODY, set[str]()),
    ],
)
def test_a_search_finds_the_documents_of_the_keys_groups(searcher: Searcher, tmp_path: Path, key: str, files: set[str]) -> None:
    served = serve(searcher, tmp_path)
    for _ in range(2):  # what is kept of a key is of no other one
        for other in (BOSS, SALES, LAW):
            post(served, other, "/v1/search", question="rotor", model="question")
        answer = post(served, key, "/v1/search", question="rotor", model="question")
        assert (answer.status_code, list_files(answer)) == (200, files)
        assert list_files(post(served, key, "/v1/search", question="rotor", model="base")) == files
    described = post(served, key, "/v1/index").json()
    assert described["pages"] == sum(page.file in files for page in PAGES)
    assert ("group" in described["filters"], bool(described["fingerprint"])) == (key == BOSS, key == BOSS)


def test_a_key_without_groups_sees_nothing_of_documents_that_have_some(searcher: Searcher, tmp_path: Path) -> None:
    served = serve(searcher, tmp_path)
    for path in ("/v1/search", "/v1/ask"):
        answer = post(served, UNSAID, path, question="rotor")
        assert answer.status_code == 403
    assert post(served, UNSAID, "/v1/index").status_code == 403
    local = served.post("/v1/search", question="rotor", model="question")  # no key at all
    assert local.status_code == 403


def test_scores_of_a_limited_key_do_not_say_how_common_a_word_is(searcher: Searcher, tmp_path: Path) -> None:
    served = serve(searcher, tmp_path)
    pages = post(served, SALES, "/v1/search", question="rotor merger", model="question").json()["pages"]
    assert [page["score"] for page in pages] == [1.0, 0.5]
    assert post(served, BOSS, "/v1/search", question="rotor merger", model="question").json()["pages"][0]["score"] not in (
        1.0,
        0.5,
    )


def test_filters_narrow_what_a_key_may_see_and_name_columns_that_there_are(searcher: Searcher, tmp_path: Path) -> None:
    served = serve(searcher, tmp_path)
    asked = {"question": "rotor", "model": "question"}
    assert list_files(post(served, SALES, "/v1/search", **asked, filter={"size": {"gte": 1}})) == {"open.pdf", "sales.pdf"}
    assert list_files(post(served, SALES, "/v1/search", **asked, filter={"size": 1})) == set()
    assert list_files(post(served, BOSS, "/v1/search", **asked, filter={"group": "board"})) == {"board/merger.pdf"}
    assert list_files(post(served, BOSS, "/v1/search", **asked, filter={"size": 1}, top_k=1)) == {"board/merger.pdf"}
    refused = post(served, SALES, "/v1/search", **asked, filter={"group": "board"})
    assert (refused.status_code, "expected one of: size (number)." in refused.json()["error"]["message"]) == (400, True)
    deep: Any = 1
    for _ in range(400):
        deep = {"eq": deep}
    for wrong in ({"size": deep}, {"size": {"any": [[1]]}}, ["size"], {"group": "\ud800"}, {"\ud800": 1}, {"size": "1"}):
        assert post(served, BOSS, "/v1/search", **asked, filter=wrong).status_code == 400
    assert post(served, BOSS, "/v1/ask", question="rotor", filter={"speed": 1}).status_code == 400


def test_an_agent_that_is_told_to_spy_is_told_nothing(searcher: Searcher, tmp_path: Path) -> None:
    served = serve(searcher, tmp_path, AgentRecord(agent=AGENT), spy)
    seen = {}
    for key in (SALES, BOSS):
        served.engine.requests.clear()
        answer = post(served, key, "/v1/ask", question="What does it cost?", model="base")
        assert answer.status_code == 200
        given = [message["content"] for request in served.engine.requests for message in request.messages]
        seen[key] = json.dumps([given, answer.json()])
        said = [message for message in given if not message.startswith("<tool_call>")]
        cited = [citation for citation in answer.json()["citations"] if citation["exists"]]
        assert len(cited) == (1 if key == SALES else 3)
        assert any("zephyrprice again" in text for text in said) == (key == BOSS)
        errors = [turn["tool_error"] for turn in answer.json()["turns"]]
        assert [bool(error) for error in errors[1:4]] == [key == SALES] * 3
    # A document that may not be seen is spoken of as one that is not there.
    assert "it has 1 pages" not in seen[SALES]
    assert "it has 1 pages" in seen[BOSS]


def test_a_limited_search_by_a_filter_is_limited_for_the_whole_agent(searcher: Searcher, tmp_path: Path) -> None:
    served = serve(searcher, tmp_path, AgentRecord(agent=AGENT), spy)
    answer = post(served, BOSS, "/v1/ask", question="What does it cost?", model="base", filter={"size": {"gt": 1}})
    assert {page["file"] for turn in answer.json()["turns"] for page in turn["pages"]} == set(GROUPS) - {"board/merger.pdf"}
    assert [citation["exists"] for citation in answer.json()["citations"]] == [False, True, True]


def test_pictures_and_search_ids_are_of_the_documents_that_a_key_may_see(tmp_path: Path) -> None:
    """Pages with pictures, and feedback on searches with a filter and with the search ids of others."""
    store = ImageStore(tmp_path / image_store.DIR_NAME)
    pages = [replace(page, image=store.write(Image.new("RGB", (50, 50), (place, 0, 0)))) for place, page in enumerate(PAGES)]
    searcher = build(tmp_path, pages)
    make_secret(tmp_path / "feedback")
    (tmp_path / "tuned").mkdir()
    feedback = FeedbackService(tmp_path / "feedback", FeedbackConfig(enabled=True))
    served = Served(searcher, tmp_path / "tuned", lambda _: "rotor", feedback=feedback)
    for key, seen in ((SALES, {"open.pdf", "sales.pdf"}), (NOBODY, set[str]()), (BOSS, set(GROUPS))):
        for page in PAGES:
            read = post(served, key, "/v1/page", file=page.file, page_number=page.page_number, edge=50)
            assert (read.status_code, "data:image/jpeg" in read.text) == ((200, True) if page.file in seen else (404, False))
    asked: dict[str, Any] = {"question": "rotor", "model": "question"}
    own = post(served, SALES, "/v1/search", **asked, filter={"size": {"gte": 2}}).json()
    foreign = post(served, BOSS, "/v1/search", **asked).json()
    for page in PAGES:
        named = {"action": "opened", "file": page.file, "page_number": page.page_number}
        said = post(served, SALES, "/v1/feedback", search_id=own["search_id"], **named)
        assert said.status_code == (200 if page.file in ("open.pdf", "sales.pdf") else 400)
        assert post(served, SALES, "/v1/feedback", search_id=foreign["search_id"], **named).status_code == 404
        assert post(served, BOSS, "/v1/feedback", search_id=foreign["search_id"], **named).status_code == 200


@pytest.mark.seconds
@pytest.mark.parametrize("options", [{}, {"mode": "legacy"}])
async def test_mcp_tools_know_the_key_of_each_request(searcher: Searcher, tmp_path: Path, options: dict[str, Any]) -> None:
    served = serve(searcher, tmp_path, AgentRecord(agent=AGENT), spy)
    served.guard = lambda key="": Guard(served.app, Rules([hash_key(text, groups) for text, groups in KEYS.items()], LIMITS))
    with served.listen() as url:
        for key, is_shown in ((SALES, False), (BOSS, True), (UNSAID, False), (SALES, False)):
            http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, trust_env=False)
            async with http, Client(streamable_http_client(f"{url}/mcp", http_client=http), **options) as client:
                calls: Sequence[tuple[str, dict[str, Any]]] = (
                    ("search", {"question": "zephyrprice rotor", "model": "question"}),
                    ("read_page", {"file": "board/merger.pdf", "page_number": 1}),
                    ("search", {"question": "rotor", "model": "question", "filter": {"size": 1}}),
                    ("ask", {"question": "What does it cost?", "model": "base"}),
                )
                for name, arguments in calls:
                    result = await client.call_tool(name, arguments)
                    told = result.model_dump_json()
                    assert ("zephyrprice of" in told or "zephyrprice again" in told) == is_shown, (key, name, told)
                wrong = await client.call_tool("search", {"question": "rotor", "filter": {"speed": 1}})
                assert wrong.is_error


@pytest.mark.parametrize(
    ("groups", "access_column", "problem"),
    [
        ([], "group", "the endpoint has no key"),
        ([None], "group", "keys that do not say theirs"),
        ([frozenset({"*"}), None], "group", "keys that do not say theirs"),
        ([frozenset({"sales"})], "", "the index does not say which documents"),
        ([], "", None),
        ([None], "", None),
        ([frozenset({"*"})], "", None),
        ([frozenset({"sales"}), frozenset[str]()], "group", None),
    ],
)
def test_keys_and_index_have_groups_both_or_neither(groups: list[Groups], access_column: str, problem: str | None) -> None:
    keys = [Key("a-key-for-this-test-alone", group) for group in groups]
    if problem is None:
        check_groups(keys, access_column)
        return
    with pytest.raises(ServeError, match=problem):
        check_groups(keys, access_column)
