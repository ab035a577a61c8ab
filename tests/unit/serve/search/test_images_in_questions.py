"""Images in questions: what models are shown, what the vectors of page pictures find, and what is refused."""

import base64
import io
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from picture_index import COLOURS, draw, write_pictures
from PIL import Image
from serve_cases import OWN, Serve, Served
from starlette.testclient import TestClient

from drag_ray.agent.prompts import Prompts
from drag_ray.agent.retrieval import open_picture_index
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.question_images import QuestionImages
from drag_ray.engine.generate import Request, list_images
from drag_ray.errors import DataError, ServeError
from drag_ray.search.config import SYNTAX_HELP, SearchConfig
from drag_ray.search.dense import fuse_rankings
from drag_ray.search.index import build_index
from drag_ray.search.metadata import Metadata
from drag_ray.search.searcher import Searcher
from drag_ray.serve.config import ServedRerankConfig
from drag_ray.serve.search.messages import SearchRequest
from drag_ray.serve.search.request_images import EndpointImages
from drag_ray.serve.search.retrieval import open_retrieval
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity

SEARCH = "<search>page 4</search>"


def to_url(image: Image.Image, form: str = "PNG") -> str:
    buffer = io.BytesIO()
    image.save(buffer, form)
    return f"data:image/{form.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def write_bomb() -> str:
    """A bitmap of some bytes whose header says that it has ten thousand million pixels."""
    kind, _, data = to_url(Image.new("RGB", (1, 1)), "BMP").partition(",")
    bomb = bytearray(base64.b64decode(data))
    bomb[18:26] = struct.pack("<ii", 100_000, 100_000)
    return f"{kind},{base64.b64encode(bomb).decode()}"


LIME = to_url(draw("lime"))


@pytest.fixture(scope="module")
def index_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of six colours from the second on, each a document with its number."""
    folder = write_pictures(tmp_path_factory.mktemp("pictures") / "index", file="{}.pdf")
    describe_documents(folder)
    return folder


def describe_documents(folder: Path, access_column: str = "") -> None:
    numbers = range(1, len(COLOURS) + 2)
    parities = ["odd" if number % 2 else "even" for number in numbers]
    names, values = [f"{number}.pdf" for number in numbers], [float(number) for number in numbers]
    metadata = Metadata(pl.DataFrame({"file": names, "number": values, "parity": parities}), access_column)
    build_index(folder / "pages.parquet", folder / "search_index", SearchConfig(), metadata)


class Case:
    """An endpoint over that index; it notes what the engine is shown. A blind one's engine reads text alone."""

    def __init__(self, index_dir: Path, folder: Path, *, blind: bool = False) -> None:
        searcher = Searcher(index_dir / "search_index")
        self.images = EndpointImages(index_dir)
        self.shown: list[list[tuple[str, tuple[int, int]]]] = []
        self.asked: list[Sequence[Any]] = []
        retrieval = open_retrieval(searcher, index_dir / "vectors", "bm25", ServedRerankConfig())
        images = None if blind else self.images
        self.served = Served(searcher, folder, self.reply, retrieval, images=images)

    def reply(self, request: Request) -> str:
        self.asked.append(request.messages)
        self.shown.append([(key, self.images.open(key).size) for key in list_images(request.messages)])
        return SEARCH if len(request.messages) < 3 else "<answer>lime <cite>4.pdf#4</cite></answer>"


@pytest.fixture
def case(index_dir: Path, tmp_path: Path) -> Case:
    return Case(index_dir, tmp_path)


def list_files(answer: Any) -> list[str]:
    return [page["file"] for page in answer.json()["pages"]]


def rank_like(index_dir: Path, url: str, shown: Any = None) -> list[Any]:
    index = open_picture_index(index_dir)
    image = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
    return index.rank(index.embedder.embed_images([image])[0], 100, shown)


@pytest.mark.parametrize("path", ["/v1/search", "/v1/ask"])
def test_a_model_that_sees_images_is_asked_as_with_those_of_a_collected_question(
    case: Case, index_dir: Path, tmp_path: Path, path: str
) -> None:
    sent = [LIME, to_url(Image.linear_gradient("L").resize((3000, 2000)), "JPEG")]
    store = ImageStore(tmp_path / "collected")
    keys = QuestionImages(store, [], 2_000_000).keep({"images": sent})
    assert case.served.post(path, question="Which page?", images=sent, model="base").status_code == 200
    assert [key for key, _ in case.shown[0]] == list(keys)
    assert case.shown[0][1][1] == store.open(keys[1]).size
    prompts = Prompts(OWN.agent, SYNTAX_HELP[Searcher(index_dir / "search_index").record.syntax])
    assert list(case.asked[0]) == prompts.opening("Which page?", keys)
    with pytest.raises(DataError, match="no such image"):
        case.images.open(keys[1])


def test_an_image_alone_is_a_question_to_such_a_model(case: Case) -> None:
    answer = case.served.post("/v1/search", images=[LIME], model="base", top_k=1).json()
    assert (answer["question"], answer["query"], answer["pages"][0]["file"]) == ("", "page 4", "4.pdf")
    answer = case.served.post("/v1/ask", question="", images=[LIME], model="base").json()
    assert (answer["answer"], answer["citations"][0]["file"]) == ("lime", "4.pdf")


def test_an_image_is_as_large_as_the_index_stage_has_kept_those_of_questions(index_dir: Path, tmp_path: Path) -> None:
    config = {"corpus": {"page_image_max_pixels": 10_000}}
    with StageFolder(tmp_path / "index", Identity("index", config, {})) as folder:
        for name in ("search_index", "pages.parquet"):
            (folder.path / name).symlink_to(index_dir / name)
        folder.finish({})
    case = Case(tmp_path / "index", tmp_path)
    case.served.post("/v1/search", question="a", images=[to_url(Image.new("RGB", (400, 400)))], model="base")
    assert case.shown == [[(case.shown[0][0][0], (99, 99))]]


@pytest.mark.parametrize("blind", [False, True])
def test_without_a_model_the_pages_are_those_with_the_nearest_pictures(index_dir: Path, tmp_path: Path, blind: bool) -> None:
    case = Case(index_dir, tmp_path, blind=blind)
    answer = case.served.post("/v1/search", model="question", images=[LIME], top_k=3)
    assert list_files(answer) == [hit.file for hit in rank_like(index_dir, LIME)[:3]]
    assert list_files(answer)[0] == "3.pdf"
    assert (answer.json()["retrieval"], answer.json()["query"]) == ("pictures", None)
    assert not case.asked


def test_a_text_beside_an_image_and_a_second_image_are_fused_with_it(case: Case, index_dir: Path) -> None:
    blue, words = to_url(draw("blue")), Searcher(index_dir / "search_index").search("6", 100)
    answer = case.served.post("/v1/search", model="question", question="6", images=[LIME, blue], top_k=7)
    expected = fuse_rankings([rank_like(index_dir, LIME), rank_like(index_dir, blue), words])
    assert [(page["file"], page["score"]) for page in answer.json()["pages"]] == [(hit.file, hit.score) for hit in expected]
    assert answer.json()["retrieval"] == "bm25+pictures"
    assert list_files(answer) != [hit.file for hit in fuse_rankings([rank_like(index_dir, LIME), rank_like(index_dir, blue)])]


async def test_what_a_filter_or_a_key_leaves_out_takes_no_place_among_the_nearest(
    case: Case, index_dir: Path, tmp_path: Path
) -> None:
    everything = [hit.file for hit in rank_like(index_dir, LIME)]
    answer = case.served.post("/v1/search", model="question", images=[LIME], top_k=2, filter={"number": {"gt": 4}})
    assert list_files(answer) == [file for file in everything if file > "4.pdf"][:2]
    describe_documents(write_pictures(tmp_path / "index", file="{}.pdf"), "parity")
    service = Case(tmp_path / "index", tmp_path).served.service
    assert service
    limited = await service.limit_to(frozenset({"even"}))
    found = (await limited.search(SearchRequest(model="question", images=[LIME], top_k=2))).pages
    assert [page.file for page in found] == [file for file in everything if int(file[0]) % 2 == 0][:2]
    assert [page.score for page in found] == [1, 0.5]


@pytest.mark.parametrize("path", ["/v1/search", "/v1/ask"])
@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"images": [LIME, write_bomb()]}, "images.1: got a picture of more than 50,000,000 pixels"),
        ({"images": [to_url(Image.new("1", (8000, 7000)))]}, "images.0: got a picture of 8,000 x 7,000 pixels"),
        ({"images": ["https://example.com/a.png"]}, "images.0: got 'https://example.com/a.png', expected data:image"),
        ({"images": ["file:///etc/passwd"]}, "images.0: got 'file:///etc/passwd', expected data:image"),
        ({"images": ["data:image/png;base64,!!!"]}, "images.0: got a data: URL whose base64 cannot be read"),
        ({"images": ["data:image/svg+xml;base64,PHN2Zy8+"]}, "images.0: got no picture, expected one of PNG"),
        ({"images": [LIME[:60]]}, "images.0: "),
        ({"images": [to_url(Image.new("RGB", (2000, 2)))]}, "images.0: .* more than 100 times the other"),
        ({"images": [LIME] * 9}, "images: List should have at most 8 items"),
        ({"images": LIME}, "images: Input should be a valid list"),
        ({"images": [5]}, "images.0: Input should be a valid string"),
        ({"images": ["\ud800"]}, "images.0: "),
        ({"images": [LIME], "rerank": True}, "rerank: .*the text of the question, which is empty"),
        ({"images": [LIME], "question": "a" * 61}, "61 characters"),
    ],
)
def test_what_is_no_picture_within_the_limits_is_refused(case: Case, path: str, body: dict[str, Any], complaint: str) -> None:
    answer = case.served.post(path, model="base", **body)
    assert answer.status_code == 400
    assert re.search(complaint, answer.json()["error"]["message"])
    assert not case.asked


def test_who_can_make_no_use_of_an_image_says_what_is_missing(index_dir: Path, tmp_path: Path, serve: Serve) -> None:
    blind = Case(index_dir, tmp_path, blind=True).served
    for served, more in ((blind, "or search with the model `question`"), (serve(lambda _: SEARCH), "")):
        for path in ("/v1/search", "/v1/ask"):
            refused = served.post(path, question="a", images=[LIME], model="base")
            assert refused.status_code == 400
            assert "read only text. Start the endpoint with a model that sees images" in refused.text
            assert more in refused.text
    refused = served.post("/v1/search", question="a", images=[LIME], model="question")
    assert (refused.status_code, "--image-embedding.model FOLDER" in refused.text) == (400, True)
    assert not served.drawn_with


def test_no_image_is_taken_where_the_endpoint_has_no_room_for_it(index_dir: Path, tmp_path: Path) -> None:
    case = Case(index_dir, tmp_path)
    case.images._max_bytes = 10
    refused = case.served.post("/v1/search", images=[LIME], model="base")
    assert (refused.status_code, "no room for another image" in refused.text) == (503, True)


def test_what_reads_text_alone_orders_pages_beside_an_image_only_where_that_is_asked_for() -> None:
    wanted = [SearchRequest(question="a", images=[LIME], rerank=rerank).wants_rerank for rerank in (None, False, True)]
    assert wanted == [False, False, True]
    assert [SearchRequest(question="a", rerank=rerank).wants_rerank for rerank in (None, False, True)] == [None, False, True]


async def test_the_tools_of_mcp_take_images(case: Case, index_dir: Path) -> None:
    with case.served.listen() as url:
        async with Client(streamable_http_client(f"{url}/mcp")) as client:
            arguments = {"question": "", "images": [LIME], "top_k": 2}
            found = (await client.call_tool("search", {**arguments, "model": "question"})).structured_content
            answer = (await client.call_tool("ask", {"question": "", "images": [LIME], "model": "base"})).structured_content
            refused = await client.call_tool("search", {"question": "", "images": [write_bomb()], "model": "question"})
    assert found
    assert [page["file"] for page in found["pages"]] == [hit.file for hit in rank_like(index_dir, LIME)[:2]]
    assert answer
    assert answer["answer"] == "lime"
    assert refused.is_error


def test_a_newer_index_without_vectors_of_pictures_does_not_take_the_place_of_one_with_them(case: Case, serve: Serve) -> None:
    newer = serve(lambda _: SEARCH).service
    assert newer
    assert case.served.service
    with pytest.raises(ServeError, match="no vectors of page pictures"):
        newer.index.warm_up(case.served.service.index)
    case.served.service.index.warm_up(newer.index)


def test_the_page_asks_for_a_picture_where_that_is_of_use(case: Case, index_dir: Path, tmp_path: Path, serve: Serve) -> None:
    blind = Case(index_dir, tmp_path, blind=True).served
    for served, who in ((case.served, '"model"'), (blind, '"question"'), (serve(lambda _: SEARCH), '""')):
        page = TestClient(served.guard(), base_url="http://localhost", client=("127.0.0.1", 1)).get("/").text
        assert f"TAKES_IMAGES = {who};" in page
        assert ('<input id="image" type="file"' in page) == (who != '""')
