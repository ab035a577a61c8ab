"""Images of rollouts: those that are gone or damaged have their rollouts run again, and those that are shown worse on purpose."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from factories import build_answer, build_call, build_question, build_trajectory
from PIL import Image
from rollout_workers import build_worker, run_chunks
from scripted_engine import ScriptedEngine

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.corpus import image_store, question_images
from drag_ray.corpus.image_degradation import DegradationConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.engine.generate import Request, list_images
from drag_ray.errors import ConfigError
from drag_ray.rollout import journal
from drag_ray.rollout.journal import drop_rollouts_without_images
from drag_ray.rollout.options import WorkerOptions, list_stores, with_degradation
from drag_ray.rollout.plan import build_plan, cut_chunks
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.storage import artifacts
from drag_ray.types import Page, Trajectory

COLORS = ("red", "green", "blue")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Three rollouts in two files: the images of the first and the second are the run's, that of the third is the index's."""
    run_dir = tmp_path / "collect"
    journal.begin_attempt(run_dir)
    stores = (run_dir / "images", run_dir / "images", tmp_path / "page_images")
    written = journal.Journal(run_dir, flush_s=1000)
    for number, (root, color) in enumerate(zip(stores, COLORS, strict=True)):
        written.add(show(ImageStore(root).write(Image.new("RGB", (40, 30), color)), f"q{number}"))
        if number:
            written.flush()
    return run_dir


def show(key: str, rollout_id: str) -> Trajectory:
    """A rollout whose first call has shown an image, and a text that looks like another."""
    trajectory = build_trajectory(build_call("crop"), build_answer(), id=rollout_id)
    messages = json.loads(trajectory.messages)
    told = {"type": "text", "text": 'Seen: "image": "ab/gone.jpg"'}
    messages[3] = {"role": "tool", "content": [told, {"type": "image", "image": key}]}
    return dataclasses.replace(trajectory, messages=json.dumps(messages))


def find_image(run_dir: Path, color: str) -> Path:
    key = ImageStore(run_dir.parent / "other").write(Image.new("RGB", (40, 30), color))
    return run_dir / "images" / key


def test_where_all_images_are_there_nothing_is_dropped(run_dir: Path) -> None:
    files = journal.list_files(run_dir, "trajectories")
    assert drop_rollouts_without_images(run_dir, [run_dir.parent / "page_images"]) == 0
    assert journal.list_files(run_dir, "trajectories") == files


@pytest.mark.parametrize("is_removed", [True, False])
def test_the_rollout_of_a_lost_or_damaged_image_has_not_finished(run_dir: Path, is_removed: bool) -> None:
    path = find_image(run_dir, "green")
    whole = path.read_bytes()
    path.unlink() if is_removed else path.write_bytes(whole[:-1] + b"x")
    assert drop_rollouts_without_images(run_dir, [run_dir.parent / "page_images"]) == 1
    assert journal.read_finished_ids(run_dir) == {"q0", "q2"}
    assert (run_dir / "corrupt" / path.name).exists() is not is_removed
    # What the rollout writes when it runs again is there, and nothing is dropped another time.
    assert ImageStore(run_dir / "images").write(Image.new("RGB", (40, 30), "green")) in path.as_posix()
    assert path.read_bytes() == whole
    assert drop_rollouts_without_images(run_dir, [run_dir.parent / "page_images"]) == 0


def test_the_whole_store_of_a_run_can_be_lost(run_dir: Path) -> None:
    for color in COLORS[:2]:
        find_image(run_dir, color).unlink()
    assert drop_rollouts_without_images(run_dir, [run_dir.parent / "page_images"]) == 2
    assert journal.read_finished_ids(run_dir) == {"q2"}


@pytest.mark.parametrize("key", ["../../outside.jpg", "/etc/passwd"])
def test_a_key_that_is_none_moves_nothing(run_dir: Path, key: str) -> None:
    outside = run_dir.parent / "outside.jpg"
    outside.write_bytes(b"mine")
    written = journal.Journal(run_dir, flush_s=1000)
    written.add(show(key, "q9"))
    written.flush()
    assert drop_rollouts_without_images(run_dir, [run_dir.parent / "page_images"]) == 1
    assert outside.read_bytes() == b"mine"


ALL = DegradationConfig(share=1, kinds=("downscale",))
AGENT = {"page_view": "image", "protocol": "tools", "tools": ("search", "view_page", "crop"), "max_iterations": 5, "top_k": 1}


def draw_noise(seed: int) -> Image.Image:
    return Image.effect_noise((200, 160), 40 + seed).convert("RGB")


@pytest.fixture
def shown(options: WorkerOptions, tmp_path: Path) -> WorkerOptions:
    """An index of one page with a picture, and a store of a question's image."""
    stores = (tmp_path / image_store.DIR_NAME, tmp_path / question_images.DIR_NAME)
    page = Page("a.pdf", 1, 1, "rotor", image=ImageStore(stores[0]).write(draw_noise(1)))
    artifacts.write_parquet(tmp_path / "pages.parquet", schemas.to_table([page], schemas.PAGES))
    build_index(tmp_path / "pages.parquet", tmp_path / "pictured" / "index", SearchConfig())
    return dataclasses.replace(
        options,
        index_dir=tmp_path / "pictured" / "index",
        agent=AgentConfig(**AGENT),  # type: ignore[arg-type]
        image_dirs=stores,
    )


def roll_out(options: WorkerOptions, key: str) -> list[list[str]]:
    """The keys of the images of each prompt: a search, the same page by its name, a part of the question's image, an answer."""
    replies = [
        render_call("search_documents", {"query": "rotor"}),
        render_call("view_page", {"file": "a.pdf", "page": 1}),
        render_call("crop", {"image": "image_1", "box": [0, 0, 1000, 1000]}),
        get_protocol("tools").render_answer("340 rpm", (), ""),
    ]

    def reply(request: Request) -> str:
        return replies[sum(message["role"] == "assistant" for message in request.messages)]

    engine = ScriptedEngine(reply)
    plan = build_plan([build_question(images=(key,))], ("greedy",), 1, run_seed=0)
    journal.begin_attempt(options.run_dir)
    [summary] = run_chunks(build_worker(options, engine), cut_chunks(plan, 1))
    assert (summary["finished"], summary["errors"]) == (1, [])
    return [list_images(request.messages) for request in engine.requests]


def test_pictures_of_pages_and_questions_are_shown_worse_and_kept_as_they_were_shown(shown: WorkerOptions) -> None:
    key = ImageStore(shown.image_dirs[1]).write(draw_noise(2))
    asked, found, viewed, cropped = roll_out(dataclasses.replace(shown, degradation=ALL), key)
    [of_question], of_page = asked, found[1]
    assert found == [of_question, of_page]
    assert viewed == [of_question, of_page, of_page]  # whoever shows a page shows the same
    own = ImageStore(shown.run_dir / "images")
    assert max(own.open(of_question).width, own.open(of_page).width) < 200 * 0.41
    assert own.open(cropped[3]).size == own.open(of_question).size  # tools work on what is seen
    [row] = journal.read_trajectories(shown.run_dir).to_pylist()
    parts = [
        part for message in json.loads(row["messages"]) if isinstance(message["content"], list) for part in message["content"]
    ]
    assert [part["image"] for part in parts if part["type"] == "image"] == cropped
    again = dataclasses.replace(shown, degradation=ALL, run_dir=shown.run_dir.parent / "again")
    assert roll_out(again, key)[2] == viewed


def test_without_a_share_pictures_are_those_of_the_index(shown: WorkerOptions) -> None:
    key = ImageStore(shown.image_dirs[1]).write(draw_noise(2))
    _, found, *_ = roll_out(shown, key)
    assert found[0] == key
    assert all(any((root / found_key).is_file() for root in shown.image_dirs) for found_key in found)


def test_a_worse_picture_that_is_lost_is_made_again_with_its_rollout(shown: WorkerOptions) -> None:
    key = ImageStore(shown.image_dirs[1]).write(draw_noise(2))
    options = dataclasses.replace(shown, degradation=ALL, agent=AgentConfig(page_view="image", max_iterations=1))
    search: Any = ScriptedEngine(lambda request: "<search>rotor</search>")
    run_chunks(build_worker(options, search), list(cut_chunks(build_plan([build_question(images=(key,))], ("greedy",), 1, 0), 1)))
    drop = (options.run_dir, options.image_dirs)
    assert drop_rollouts_without_images(*drop, shows_degraded=True) == 0
    [worse] = list_images(search.requests[0].messages)
    (list_stores(*drop)[0] / worse).unlink()
    assert drop_rollouts_without_images(*drop) == 0  # no tool was called
    assert drop_rollouts_without_images(*drop, shows_degraded=True) == 1


def test_an_agent_that_sees_no_pictures_sees_no_worse_ones(options: WorkerOptions, shown: WorkerOptions) -> None:
    with pytest.raises(ConfigError, match=r"evaluate\.degradation\.share 1: the agent is shown no pictures"):
        with_degradation(options, ALL, "evaluate.degradation")
    assert with_degradation(options, DegradationConfig(), "evaluate.degradation") == options
    assert with_degradation(shown, ALL, "evaluate.degradation").degradation == ALL
