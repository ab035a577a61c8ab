"""Images of tools behind /v1/ask: in memory while their request lasts, and sent where it asks for them."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from serve_cases import Served
from small_index import write_index

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.agent.record import AgentRecord, write_record
from drag_ray.corpus.image_store import DIR_NAME, ImageStore
from drag_ray.engine.generate import Request, list_images
from drag_ray.errors import DataError, ToolError
from drag_ray.search.searcher import Searcher
from drag_ray.serve.search.request_images import EndpointImages
from drag_ray.types import Page

AGENT = AgentConfig(query_mode="rewrite", protocol="tools", tools=("search", "view_page", "crop"), max_iterations=4)
REPLIES = (
    render_call("view_page", {"file": "a.pdf", "page": 1}),
    render_call("crop", {"image": "image_1", "box": [0, 0, 500, 500]}),
    render_call("crop", {"image": "image_9", "box": [0, 0, 500, 500]}),
    get_protocol("tools").render_answer("red"),
)


class Case:
    """An endpoint over an index whose page has a picture; it notes what a request was shown when the engine was asked."""

    def __init__(self, folder: Path) -> None:
        key = ImageStore(folder / DIR_NAME).write(Image.new("RGB", (2000, 1600), "red"))
        write_index(folder, [Page("a.pdf", 1, 1, "rotor", image=key)], [])
        write_record(folder, AgentRecord(agent=AGENT))
        self.images = EndpointImages(folder)
        self.sizes: list[list[tuple[int, int]]] = []
        self.served = Served(
            Searcher(folder / "search_index"), folder, self.reply, images=self.images, own=AgentRecord(agent=AGENT)
        )

    def reply(self, request: Request) -> str:
        self.keys = list_images(request.messages)
        self.sizes.append([self.images.open(key).size for key in self.keys])
        return REPLIES[sum(message["role"] == "assistant" for message in request.messages)]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def open_sent(turn: dict[str, Any]) -> list[tuple[str, tuple[int, int]]]:
    prefix = "data:image/jpeg;base64,"
    assert all(image["url"].startswith(prefix) for image in turn["images"])
    decoded = [base64.b64decode(image["url"].removeprefix(prefix)) for image in turn["images"]]
    return [(image["label"], Image.open(io.BytesIO(data)).size) for image, data in zip(turn["images"], decoded, strict=True)]


def test_what_tools_show_reaches_the_engine_and_is_sent_small_where_it_is_asked_for(case: Case) -> None:
    answer = case.served.post("/v1/ask", question="Which colour?", show_images=True).json()
    assert [bool(turn["tool_error"]) for turn in answer["turns"]] == [False, False, True, False]
    assert case.sizes == [[], [(2000, 1600)], [(2000, 1600), (1000, 800)], [(2000, 1600), (1000, 800)]]
    assert [open_sent(turn) for turn in answer["turns"]] == [
        [("image_1: a.pdf#1", (640, 512))],
        [("image_2: crop of image_1 at 0,0,500,500", (640, 512))],
        [],
        [],
    ]


def test_nothing_is_sent_unless_it_is_asked_for_and_events_hold_it_too(case: Case) -> None:
    assert [turn["images"] for turn in case.served.post("/v1/ask", question="Which colour?").json()["turns"]] == [[]] * 4
    events = case.served.post("/v1/ask", question="Which colour?", show_images=True, stream=True).text.split("\n\n")
    turns = [json.loads(event.partition("data: ")[2]) for event in events if event.startswith("event: turn")]
    assert [len(turn["images"]) for turn in turns] == [1, 1, 0, 0]


def test_what_a_request_was_shown_is_gone_with_it_and_never_on_the_disk(case: Case, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*.jpg"))
    case.served.post("/v1/ask", question="Which colour?")
    page, cropped = case.keys
    assert case.images.open(page).size == (2000, 1600)
    with pytest.raises(DataError, match="no such image"):
        case.images.open(cropped)
    assert sorted(tmp_path.rglob("*.jpg")) == before


def test_an_image_of_two_requests_stays_until_both_are_over_and_there_is_a_bound(tmp_path: Path) -> None:
    picture = Image.new("RGB", (64, 64), "red")
    images = EndpointImages(tmp_path, max_bytes=1000)
    with images.begin() as first:
        with images.begin() as second:
            key = first.write(picture)
            assert second.write(picture) == key
            with pytest.raises(ToolError, match="no room for another image"):
                second.write(Image.effect_noise((64, 64), 200))
        assert images.open(key).size == (64, 64)
        with pytest.raises(ToolError, match="the request is over"):
            second.write(picture)
    with pytest.raises(DataError, match="no such image"):
        images.open(key)
