"""Search of pages by their pictures: what is found by words and by pictures, what is shown of it, and what is refused."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from embedding_models import write_clip_model
from picture_index import COLOURS, draw, write_pictures

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.retrieval import open_picture_index
from drag_ray.corpus.image_store import DIR_NAME, ImageStores
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.encoders.embedding import ImageEmbedder
from drag_ray.errors import ConfigError, SearchIndexError
from drag_ray.rollout import options as rollout_options
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.options import build_options
from drag_ray.search.config import ImageEmbeddingConfig, SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.metadata import Metadata
from drag_ray.search.searcher import Searcher
from drag_ray.search.vectors import IMAGES_DIR_NAME
from drag_ray.tools.calls import CallLimits, CallOutcome
from drag_ray.tools.images.rollout_images import RolloutImages
from drag_ray.tools.registry import load_toolset
from drag_ray.tools.workspace import Workspace


@pytest.fixture(scope="module")
def index_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("pictures") / "index")


def open_workspace(index_dir: Path, run_dir: Path) -> Workspace:
    """The question has the picture of the third page."""
    stores = ImageStores((run_dir, index_dir / DIR_NAME))
    return Workspace(Searcher(index_dir / "search_index"), RolloutImages(stores, 6, [stores.write(draw("lime"))]))


@pytest.fixture
def workspace(index_dir: Path, tmp_path: Path) -> Workspace:
    return open_workspace(index_dir, tmp_path / "run")


async def call(workspace: Workspace, **arguments: object) -> CallOutcome:
    caller = load_toolset(("image_search",)).callers["image_search"]
    return await caller.call(json.dumps(arguments), workspace, CallLimits(60, 1000))


@pytest.mark.seconds
async def test_a_picture_or_words_find_the_pages_that_are_nearest(workspace: Workspace, index_dir: Path) -> None:
    outcome = await call(workspace, image="image_1", pages=1)
    assert (outcome.error, outcome.text) == ("", "Pages with such pictures, the likest first:")
    [shown] = outcome.images
    assert shown.caption == "manual.pdf#3"
    assert shown.key == workspace.find_page("manual.pdf", 3).image
    embedder = ImageEmbedder(ImageEmbeddingConfig(model=str(index_dir / "model")))
    [query] = embedder.embed_texts(["rotor speed"])
    products = embedder.embed_images([draw(colour) for colour in COLOURS]) @ query
    nearest = [f"manual.pdf#{number + 2}" for number in np.argsort(-products)]  # the first page has no picture
    outcome = await call(workspace, query="rotor speed", pages=5)
    assert [image.caption for image in outcome.images] == nearest[:5]


async def test_pictures_of_documents_that_may_not_be_seen_are_not_found(tmp_path: Path) -> None:
    index_dir = write_pictures(tmp_path / "index", file="{}.pdf")
    numbers = range(1, len(COLOURS) + 2)
    table = pl.DataFrame({"file": [f"{number}.pdf" for number in numbers], "number": [float(number) for number in numbers]})
    build_index(index_dir / "pages.parquet", index_dir / "search_index", SearchConfig(), Metadata(table))
    workspace = open_workspace(index_dir, tmp_path / "run")  # its picture is that of the third
    found = (await call(workspace, image="image_1", pages=5)).images
    searcher = Searcher(index_dir / "search_index")
    left = (await call(replace(workspace, pages=searcher.narrow({"number": {"gt": 4}})), image="image_1", pages=2)).images
    assert found[0].caption == "3.pdf#3"
    assert [image.caption for image in left] == [image.caption for image in found if image.caption >= "5"][:2]
    nothing = replace(workspace, pages=searcher.narrow({"number": 0}))
    assert (await call(nothing, image="image_1")).text == "No page has a picture."


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "give either a query or the name of an image"),
        ({"query": "  "}, "give either a query or the name of an image"),
        ({"query": "rotor", "image": "image_1"}, "give either a query or the name of an image"),
        ({"image": "image_7"}, "no image 'image_7': there is image_1"),
        ({"image": "../../etc/passwd"}, "no image '../../etc/passwd'"),
        ({"query": "x" * 1001}, "query: String should have at most 1000 characters"),
        ({"query": "rotor", "pages": 0}, "pages: Input should be greater than or equal to 1"),
        ({"query": "rotor", "pages": 6}, "pages: Input should be less than or equal to 5"),
        ({"query": ["rotor"]}, "query: Input should be a valid string"),
    ],
)
async def test_calls_that_cannot_be_are_told(workspace: Workspace, arguments: dict[str, object], problem: str) -> None:
    outcome = await call(workspace, **arguments)
    assert problem in outcome.error
    assert not outcome.images


async def test_more_pictures_than_a_rollout_may_be_shown_are_refused(workspace: Workspace) -> None:
    for image in (await call(workspace, query="rotor", pages=5)).images:
        workspace.images.show(image)
    outcome = await call(workspace, query="rotor", pages=2)
    assert "2 more images cannot be shown: of the 6 that tools may return in a rollout, 5 are there" in outcome.error


def test_an_index_whose_folder_has_the_place_and_number_of_an_earlier_one_is_opened(tmp_path: Path) -> None:
    index_dir = write_pictures(tmp_path / "index", COLOURS[:1])
    first = open_picture_index(index_dir)
    assert open_picture_index(index_dir) is first
    os.utime(index_dir, ns=(0, 0))
    assert open_picture_index(index_dir) is not first


async def test_pages_without_any_picture_leave_nothing_to_find(tmp_path: Path) -> None:
    index_dir = write_pictures(tmp_path / "index", ())
    outcome = await call(Workspace(Searcher(index_dir / "search_index")), query="rotor")
    assert (outcome.text, outcome.images, outcome.error) == ("No page has a picture.", (), "")


async def test_what_is_wrong_with_the_vectors_is_told_to_the_policy_without_paths(tmp_path: Path) -> None:
    index_dir = write_pictures(tmp_path / "index")
    workspace = open_workspace(index_dir, tmp_path / "run")
    (index_dir / "model").rename(index_dir / "gone")
    assert (await call(workspace, query="rotor")).error == "the pictures of this collection cannot be searched"
    write_clip_model(index_dir / "model", seed=1)
    assert (await call(workspace, query="rotor")).error == "the pictures of this collection cannot be searched"
    with pytest.raises(SearchIndexError, match=r"no longer the one that made these vectors.*--image-embedding\.model FOLDER"):
        open_picture_index(index_dir)
    path = index_dir / IMAGES_DIR_NAME / "vectors.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SearchIndexError, match=r"damaged|cannot be read"):
        open_picture_index(index_dir)


def test_an_index_without_vectors_of_pictures_is_refused_before_an_engine_starts(
    tmp_path: Path, index_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout_options, "check_functions_shown", lambda *_: None)  # the embedded model's template shows none
    agent = AgentConfig(protocol="tools", tools=("search", "image_search"), max_iterations=3)
    build_options(agent, EngineConfig(), RolloutConfig(), index_dir, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"has no vectors of the pictures of its pages.*--image-embedding\.model FOLDER"):
        build_options(agent, EngineConfig(), RolloutConfig(), tmp_path, tmp_path / "run")
