"""Files that a node has of a run whose folder it does not see."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from factories import build_question
from PIL import Image
from scripted_engine import ScriptedEngine
from small_index import write_index

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.task import Policy
from drag_ray.corpus.image_store import DIR_NAME, ImageStore
from drag_ray.engine.config import EndpointConfig, EngineConfig
from drag_ray.engine.generate import GenerateFn, ImageSource, Request
from drag_ray.engine.sampling import PRESETS
from drag_ray.errors import ConfigError, DataError, StorageError
from drag_ray.rollout.detached import resolve_worker_paths
from drag_ray.rollout.folder import ATTEMPT_NAME, IMAGES_DIR_NAME
from drag_ray.rollout.journal import keep_here
from drag_ray.rollout.options import WorkerOptions, open_stores, start_engine
from drag_ray.search.searcher import Searcher
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.stage_runs.store import StageStore
from drag_ray.storage.artifacts import Identity
from drag_ray.storage.file_access import open_own_folder
from drag_ray.storage.object_store import StorageConfig
from drag_ray.types import Page

RED = Image.new("RGB", (40, 40), "red")


def finish(run_dir: Path, stage: str, **files: str) -> Path:
    with StageFolder(run_dir / stage, Identity(stage, {}, {})) as folder:
        for name, text in files.items():
            (folder.path / name).mkdir()
            (folder.path / name / "file").write_text(text)
        if stage == "index":
            key = ImageStore(folder.path / DIR_NAME).write(RED)
            write_index(folder.path, [Page("a.pdf", 1, 1, "rotor", image=key)], [build_question()])
        folder.finish({})
    return folder.path


@pytest.fixture
def options(tmp_path: Path) -> WorkerOptions:
    """Of a run that lies in a store, and whose folder is gone but for its rollouts: the node does not see it."""
    run_dir, storage = tmp_path / "run", StorageConfig(uri=f"file://{tmp_path}/store")
    index_dir, finetune_dir = finish(run_dir, "index"), finish(run_dir, "finetune", adapter="tuned", merged="whole")
    inputs = Inputs({"index": index_dir, "finetune": finetune_dir}, run_dir, storage)
    for address in ("index", "finetune"):
        StageStore(storage).push(run_dir, address)
    options = WorkerOptions(
        run_dir=run_dir / "collect",
        index_dir=index_dir / "search_index",
        agent=AgentConfig(page_view="image"),
        engine=EngineConfig(model=str(finetune_dir / "merged")),
        policies={"": Policy("base"), "tuned": Policy("tuned", str(finetune_dir / "adapter"))},
        concurrent_rollouts=2,
        flush_s=0,
        image_dirs=(index_dir / DIR_NAME, index_dir / "question_images"),
        node_dir=tmp_path / "node",
        stored=inputs.list_stored(),
    )
    options.run_dir.mkdir()
    for folder in (index_dir, finetune_dir):
        shutil.rmtree(folder)
    return options


def test_a_node_that_sees_the_folder_of_the_run_uses_it(options: WorkerOptions) -> None:
    (options.run_dir / ATTEMPT_NAME).write_text("this")
    assert resolve_worker_paths(options, "this", keep_here) == (options, keep_here)


@pytest.mark.parametrize("left", [None, "an earlier one"])
def test_a_node_that_does_not_searches_a_copy_without_the_pictures_of_pages(options: WorkerOptions, left: str | None) -> None:
    if left:  # in a folder of the same name on its own disk
        (options.run_dir / ATTEMPT_NAME).write_text(left)
    here, _ = resolve_worker_paths(options, "this", keep_here)
    assert [hit.file for hit in Searcher(here.index_dir).search("rotor", 3)] == ["a.pdf"]
    assert not (here.index_dir.parent / DIR_NAME).exists()
    assert resolve_worker_paths(options, "this", keep_here)[0].index_dir == here.index_dir


def test_pictures_of_pages_come_from_the_store_and_those_of_rollouts_from_and_to_the_folder_of_the_run(
    options: WorkerOptions, tmp_path: Path
) -> None:
    here, _ = resolve_worker_paths(options, "this", keep_here)
    stores = open_stores(here)
    assert stores
    page = Searcher(here.index_dir).find_page("a.pdf", 1)
    assert page
    assert stores.open(page.image).getpixel((3, 3)) == pytest.approx((255, 0, 0), abs=3)
    assert (open_own_folder(tmp_path / "node") / "images" / page.image).exists()
    key = stores.write(Image.new("RGB", (40, 40), "blue"))
    of_run = ImageStore(options.run_dir / IMAGES_DIR_NAME)
    assert of_run.open(key).getpixel((3, 3)) == pytest.approx((0, 0, 255), abs=3)
    earlier = of_run.write(Image.new("RGB", (40, 40), "lime"))
    assert stores.open(earlier).getpixel((3, 3)) == pytest.approx((0, 255, 0), abs=3)
    with pytest.raises(DataError, match="no such image"):
        stores.open("ab/ab" + 30 * "0" + ".jpg")


async def test_model_and_adapters_of_the_run_are_copies_on_the_node_under_the_names_that_requests_know(
    options: WorkerOptions,
) -> None:
    started: list[tuple[str, Sequence[str]]] = []
    engine = ScriptedEngine(lambda request: request.adapter)

    def build(config: EngineConfig, images: ImageSource | None, adapters: Sequence[str]) -> GenerateFn:
        started.append((config.model, adapters))
        return engine

    here, _ = resolve_worker_paths(dataclasses.replace(options, build_engine=build), "this", keep_here)
    generate = start_engine(here)
    [(model, [adapter])] = started
    assert [(Path(folder) / "file").read_text() for folder in (model, adapter)] == ["whole", "tuned"]
    asked = Request(({"role": "user", "content": "?"},), PRESETS["greedy"], 4, 0, adapter=options.policies["tuned"].adapter)
    assert (await generate(asked)).text == adapter
    assert (await generate(dataclasses.replace(asked, adapter=""))).text == ""
    start_engine(dataclasses.replace(here, engine=EngineConfig(model="s3://bucket/model")))
    assert started[-1][0] == "s3://bucket/model"  # which the engine itself copies


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"stored": ()}, r"storage\.uri"),
        ({"node_dir": None}, r"rollout\.node_dir"),
        (
            {"engine": EngineConfig(backend="openai", model="m", endpoint=EndpointConfig(address="http://127.0.0.1:1"))},
            "endpoint",
        ),
        ({"borrows_engine": True}, r"rollout\.keep_engines"),
    ],
)
def test_what_a_node_lacks_that_does_not_see_the_folder_is_said(
    options: WorkerOptions, changes: dict[str, object], remedy: str
) -> None:
    with pytest.raises(ConfigError, match=f"does not see .*collect.*{remedy}"):
        resolve_worker_paths(dataclasses.replace(options, **changes), "this", keep_here)  # type: ignore[arg-type]


def test_a_stage_that_was_not_pushed_as_it_is_now_is_said_to_be_missing(options: WorkerOptions) -> None:
    stored = tuple(dataclasses.replace(stage, checksums="0" * 16) for stage in options.stored)
    with pytest.raises(StorageError, match=r"has another index than the run\. Run: drag-ray push"):
        resolve_worker_paths(dataclasses.replace(options, stored=stored), "this", keep_here)
