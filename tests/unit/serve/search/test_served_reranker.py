"""A served model of the task rerank, as a stage after search."""

from pathlib import Path

from PIL import Image
from serve_cases import Serve, Served
from small_index import write_index

from drag_ray.agent.config import AgentConfig, RerankOptions
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.agent.record import AgentRecord, write_record
from drag_ray.corpus.image_store import DIR_NAME, ImageStore
from drag_ray.engine.generate import Request, list_images
from drag_ray.search.searcher import Searcher
from drag_ray.serve.search.request_images import EndpointImages
from drag_ray.types import Page

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


def test_a_reranker_looks_closer_by_itself_and_after_a_search(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / DIR_NAME)
    keys = [store.write(Image.linear_gradient("L").rotate(90 * turn)) for turn in range(2)]
    write_index(tmp_path, [Page(f"{key[:2]}.pdf", 1, 1, "rotor", image=key) for key in keys], [])
    tools = {"page_view": "image", "tools": ("zoom",), "max_iterations": 2}
    write_record(tmp_path, AgentRecord(agent=AgentConfig.model_validate(AGENT.model_dump() | tools)))
    own = AgentConfig(query_mode="rewrite", protocol="tools", tools=("search", "zoom"), max_iterations=2)
    images = EndpointImages(tmp_path)
    seen: list[int] = []

    def look(request: Request) -> str:
        keys = list_images(request.messages)
        if not keys:
            return get_protocol("tools").render_search("rotor")
        seen.append(len([images.open(key) for key in keys]))
        return render_call("zoom", {"image": "image_2"}) if len(keys) == 2 else "<answer>[2, 1]</answer>"

    served = Served(Searcher(tmp_path / "search_index"), tmp_path, look, images=images, own=AgentRecord(agent=own))
    found = list_pages(served.post("/v1/search", question=QUESTION, model="base").json())
    for asked in ({"model": "tuned"}, {"model": "base", "reranker": "tuned"}):
        ordered = list_pages(served.post("/v1/search", question=QUESTION, **asked).json())
        assert [file for _, file in ordered] == [file for _, file in found][::-1]
    assert seen == [2, 3, 2, 3]


def test_a_model_of_another_task_and_one_that_is_not_there_are_refused(serve: Serve) -> None:
    served = serve(reply)
    refused = served.post("/v1/search", question=QUESTION, reranker="base")
    assert (refused.status_code, "its task is find_page" in refused.text) == (400, True)
    assert served.post("/v1/search", question=QUESTION, reranker="nobody").status_code == 404
