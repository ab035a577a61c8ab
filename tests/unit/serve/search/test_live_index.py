"""An endpoint whose index is exchanged while clients ask: none fails, and each answer is of exactly one index."""

import asyncio
import gc
import logging
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
from app_settings import build_app_settings
from serve_cases import LIMITS, Served
from small_index import open_index

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import Request
from drag_ray.search.dense import DenseSearcher
from drag_ray.search.metadata import Metadata
from drag_ray.search.searcher import Searcher
from drag_ray.serve.ingress.guard import Guard, Rules
from drag_ray.serve.ingress.key import Groups, hash_key
from drag_ray.serve.search import served_index
from drag_ray.serve.search.live_index import HeldFolder, IndexFolders, LiveIndex
from drag_ray.serve.search.messages import SearchRequest
from drag_ray.serve.search.retrieval import Retrieval
from drag_ray.serve.search.search_service import SearchService
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity
from drag_ray.types import Page

NUM_PAGES = 5
KEY = "a-key-for-this-test-alone"
ALONE = {"question": "rotor", "model": "question"}


def build(run_dir: Path, number: int, groups: Sequence[str] = ()) -> None:
    """The index stage's folder as of the build of this number, which all of its pages name."""
    files = [f"{chr(ord('a') + place)}{number}.pdf" for place in range(NUM_PAGES)]
    pages = [Page(file, 1, 1, f"rotor of build{number} " + "blade " * place) for place, file in enumerate(files)]
    with StageFolder(run_dir / "index", Identity("index", {"build": number}, {}), keeps_earlier=True) as folder:
        table = pl.DataFrame({"file": files, "group": (NUM_PAGES * [*groups, *[""] * (not groups)])[:NUM_PAGES]})
        open_index(folder.path, pages, Metadata(table, "group") if groups else None)
        folder.finish({})


def reply(request: Request) -> str:
    turn = sum(message["role"] == "assistant" for message in request.messages)
    return ("<search>rotor blade</search>", "<search>rotor</search>", "<answer>so <cite>a.pdf#1</cite></answer>")[turn % 3]


class Live(Served):
    """An endpoint of the index of a run."""

    def __init__(self, run_dir: Path, groups: Groups = None, **options: Any) -> None:
        (run_dir / "tuned").mkdir(exist_ok=True)
        self.opened: list[weakref.ref[Searcher]] = []
        build(run_dir, 0, ["a"] if groups else ())
        super().__init__(Searcher(run_dir / "index" / "search_index"), run_dir / "tuned", reply, delay_s=0.01)
        index_dir = str(run_dir / "index" / "search_index")
        settings = build_app_settings(EngineConfig(), keys=(hash_key(KEY, groups),), index_dir=index_dir, **options)
        self.index = self.app.state.live_index = LiveIndex(settings, self._open)
        self.keys = settings.keys

    def _open(self, folders: IndexFolders) -> SearchService:
        searcher = Searcher(folders.index.path / "search_index", holder=folders)
        self.opened.append(weakref.ref(searcher))
        assert self.service
        return SearchService(searcher, Retrieval(searcher), self.service._models, self._draw, LIMITS, self)

    def connect(self) -> httpx.AsyncClient:
        guard = Guard(self.app, Rules(self.keys, LIMITS))
        headers = {"Authorization": f"Bearer {KEY}"}
        return httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url="http://test", headers=headers)


def read_builds(answer: dict[str, Any]) -> set[str]:
    pages = [page for turn in answer.get("turns", [answer]) for page in turn["pages"]]
    return {page["file"][1:-4] for page in pages} | {page["snippet"].split("build")[1].split()[0] for page in pages}


async def test_a_filter_of_a_request_that_outlasts_its_index_does_not_hold_that(tmp_path: Path) -> None:
    served = Live(tmp_path, frozenset({"*"}))
    old = served.index.service
    folders = weakref.ref(old.index.searcher._holder)
    build(tmp_path, 1, ["a"])
    await served.index.look()
    gc.disable()
    try:
        answer = await old.search(SearchRequest.model_validate({**ALONE, "filter": {"group": "a"}}))
        assert len(answer.pages) == NUM_PAGES
        del old
        for _ in range(100):  # the thread of the search lets go of it a moment later
            await asyncio.sleep(0.01 * (folders() is not None))
        assert folders() is None
    finally:
        gc.enable()


@pytest.mark.seconds
async def test_of_a_large_index_fewer_filters_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for num_pages, num_kept in ((NUM_PAGES * 9, 9), (1, 4), (10**9, 64)):
        monkeypatch.setattr(served_index, "_KEPT_PAGES", num_pages)
        service = Live(tmp_path, frozenset({"*"})).index.service
        for number in range(70):
            await service.search(SearchRequest.model_validate({**ALONE, "filter": {"group": f"{number}"}}))
        assert len(service.index._kept._indexes) == num_kept


@pytest.mark.seconds
async def test_no_client_fails_and_each_answer_is_of_one_index_while_it_is_exchanged(tmp_path: Path) -> None:
    served = Live(tmp_path, index_check_s=0.02)
    seen: set[str] = set()
    num_answers, is_over = 0, False

    async def ask(client: httpx.AsyncClient, number: int) -> None:
        nonlocal num_answers
        while not is_over:
            body = {"question": "rotor", "model": ("question", "base")[number % 2]}
            answer = await client.post(
                ("/v1/search", "/v1/ask")[number % 3 == 0], json={**body, "model": "base"} if number % 3 == 0 else body
            )
            assert answer.status_code == 200, answer.text
            builds = read_builds(answer.json())
            assert len(builds) == 1, builds
            seen.update(builds)
            num_answers += 1

    watching = asyncio.create_task(served.index.watch())
    async with served.connect() as client:
        asking = [asyncio.create_task(ask(client, number)) for number in range(48)]
        for number in range(1, 5):
            await asyncio.to_thread(build, tmp_path, number)
            while read_builds((await client.post("/v1/search", json=ALONE)).json()) != {str(number)}:
                await asyncio.sleep(0.01)
                assert not any(task.done() for task in asking)
        is_over = True
        await asyncio.gather(*asking)
    watching.cancel()
    assert seen == {"0", "1", "2", "3", "4"}
    assert num_answers > 100
    gc.collect()
    assert [opened() is not None for opened in served.opened] == [False] * 4 + [True]


async def test_an_index_that_cannot_be_used_leaves_the_old_one_and_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = Live(tmp_path)
    async with served.connect() as client:
        assert (await client.get("/v1/index")).json()["problem"] == ""
        await asyncio.to_thread(build, tmp_path, 1)
        damaged = next((tmp_path / "index" / "search_index" / "tantivy").glob("*.term"))
        sound = damaged.read_bytes()
        damaged.write_bytes(b"x" * len(sound))
        with caplog.at_level(logging.ERROR):
            await served.index.look()
            await served.index.look()
        [_] = [record for record in caplog.records if record.levelno == logging.ERROR]  # once for each index
        told = (await client.get("/v1/index")).json()
        assert f"{tmp_path / 'index'}" in told["problem"]
        assert "damaged" in told["problem"]
        assert "/proc/" not in told["problem"]
        answer = await client.post("/v1/search", json=ALONE)
        assert (answer.status_code, read_builds(answer.json())) == (200, {"0"})
        await asyncio.to_thread(build, tmp_path, 2)
        await served.index.look()
        assert (await client.get("/v1/index")).json()["problem"] == ""
        assert read_builds((await client.post("/v1/search", json=ALONE)).json()) == {"2"}


async def test_an_index_on_the_move_is_waited_for(tmp_path: Path) -> None:
    served = Live(tmp_path)
    moved = (tmp_path / "index").rename(tmp_path / "elsewhere")
    await served.index.look()
    async with served.connect() as client:
        assert read_builds((await client.post("/v1/search", json=ALONE)).json()) == {"0"}
        build(tmp_path, 1)
        (moved / "manifest.json").unlink()
        await served.index.look()
        assert read_builds((await client.post("/v1/search", json=ALONE)).json()) == {"1"}


@pytest.mark.parametrize(
    ("groups", "newer", "problem"),
    [
        (frozenset({"a"}), (), "the index does not say which documents"),
        (None, ("a", "b"), "keys that do not say theirs"),
    ],
)
async def test_an_index_that_would_show_a_key_more_or_nothing_is_not_taken(
    tmp_path: Path, groups: Groups, newer: Sequence[str], problem: str
) -> None:
    served = Live(tmp_path, groups)
    await asyncio.to_thread(build, tmp_path, 1, newer)
    await served.index.look()
    assert problem in served.index.problem
    async with served.connect() as client:
        told = (await client.get("/v1/index")).json()["problem"]
        assert told == (served.index.problem if groups is None else "a newer index cannot be used; see the endpoint's log.")
        answer = await client.post("/v1/search", json=ALONE)
        assert read_builds(answer.json()) == {"0"}
        await asyncio.to_thread(build, tmp_path, 2, ["b", "a"] if groups else ())
        await served.index.look()
        found = (await client.post("/v1/search", json=ALONE)).json()
        assert {page["file"] for page in found["pages"]} == (
            {"b2.pdf", "d2.pdf"} if groups else {f"{one}2.pdf" for one in "abcde"}
        )


async def test_an_index_without_the_vectors_that_are_searched_is_not_taken(tmp_path: Path) -> None:
    served = Live(tmp_path)
    dense: Any = object.__new__(DenseSearcher)
    served.index.service.index.retrieval = Retrieval(served.index.service.index.searcher, {"dense": dense})
    await asyncio.to_thread(build, tmp_path, 1)
    await served.index.look()
    assert "cannot be searched by dense" in served.index.problem


def test_a_held_folder_is_the_same_wherever_it_is_moved_and_is_let_go(tmp_path: Path) -> None:
    place = tmp_path / "index"
    place.mkdir()
    (place / "a.txt").write_text("old")
    held = HeldFolder(place)
    place.rename(tmp_path / "previous")
    place.mkdir()
    (place / "a.txt").write_text("new")
    assert ((held.path / "a.txt").read_text(), held.is_in_place()) == ("old", False)
    path = held.path
    del held
    assert not path.exists()
