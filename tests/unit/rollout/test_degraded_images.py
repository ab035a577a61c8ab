"""Rollouts whose policy is shown worse pictures than the index has."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from factories import build_question
from PIL import Image
from rollout_workers import build_worker, run_chunks

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.corpus import page_images, question_images
from drag_ray.corpus.image_degradation import DegradationConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.engine.generate import Request, list_images
from drag_ray.engine.scripted import ScriptedEngine
from drag_ray.errors import ConfigError
from drag_ray.rollout import journal
from drag_ray.rollout.journal import drop_rollouts_without_images
from drag_ray.rollout.options import WorkerOptions, list_stores, with_degradation
from drag_ray.rollout.plan import build_plan, cut_chunks
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.storage import artifacts
from drag_ray.types import Page

ALL = DegradationConfig(share=1, kinds=("downscale",))
AGENT = {"page_view": "image", "protocol": "tools", "tools": ("search", "view_page", "crop"), "max_iterations": 5, "top_k": 1}


def draw_noise(seed: int) -> Image.Image:
    return Image.effect_noise((200, 160), 40 + seed).convert("RGB")


@pytest.fixture
def shown(options: WorkerOptions, tmp_path: Path) -> WorkerOptions:
    """An index of one page with a picture, and a store of a question's image."""
    stores = (tmp_path / page_images.DIR_NAME, tmp_path / question_images.DIR_NAME)
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
    [summary] = run_chunks(build_worker(options, engine), list(cut_chunks(plan, 1)))
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
