"""A served model of the task rerank, as a stage after search."""

from pathlib import Path

from serve_cases import Serve, Served

from drag_ray.agent.config import AgentConfig, RerankOptions
from drag_ray.agent.record import AgentRecord, write_record
from drag_ray.engine.generate import Request
from drag_ray.search.searcher import Searcher

QUESTION = "How fast may the rotor turn?"
AGENT = AgentConfig(task="rerank", depth=20, rerank=RerankOptions(candidates=20), max_tokens=20)


def reply(request: Request) -> str:
    return "<answer>[2, 1]</answer>" if "(2)" in request.messages[-1]["content"] else "<search>rotor</search>"


def serve_reranker(searcher: Searcher, tmp_path: Path) -> Served:
    (tmp_path / "orders").mkdir()
    write_record(tmp_path / "orders", AgentRecord(agent=AGENT))
    return Served(searcher, tmp_path / "orders", reply)


def list_pages(answer: dict[str, list[dict[str, object]]]) -> list[tuple[object, ...]]:
    return [(page["rank"], page["file"]) for page in answer["pages"]]


def test_a_reranker_orders_what_another_model_found(searcher: Searcher, tmp_path: Path) -> None:
    served = serve_reranker(searcher, tmp_path)
    found = served.post("/v1/search", question=QUESTION, model="base").json()
    ordered = served.post("/v1/search", question=QUESTION, model="base", reranker="tuned").json()
    assert list_pages(found) == [(1, "a.pdf"), (2, "b.pdf")]
    assert list_pages(ordered) == [(1, "b.pdf"), (2, "a.pdf")]
    assert {page["file"]: page["score"] for page in ordered["pages"]} == {page["file"]: page["score"] for page in found["pages"]}
    assert (found["reranked"], ordered["reranked"], ordered["query"], ordered["model"]) == (False, True, "rotor", "base")
    assert served.drawn_with == ["", "", "tuned"]


def test_a_reranker_by_itself_orders_what_the_question_finds(searcher: Searcher, tmp_path: Path) -> None:
    answer = serve_reranker(searcher, tmp_path).post("/v1/search", question=QUESTION, model="tuned", top_k=1).json()
    assert (list_pages(answer), answer["query"]) == ([(1, "a.pdf")], "[2, 1]")


def test_a_model_of_another_task_and_one_that_is_not_there_are_refused(serve: Serve) -> None:
    served = serve(reply)
    refused = served.post("/v1/search", question=QUESTION, reranker="base")
    assert (refused.status_code, "its task is find_page" in refused.text) == (400, True)
    assert served.post("/v1/search", question=QUESTION, reranker="nobody").status_code == 404
