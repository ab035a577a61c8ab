"""Limit of images in a prompt, which an engine is told when it starts."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from factories import build_question

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.corpus import image_store, question_images
from drag_ray.corpus.questions import QUESTIONS_NAME
from drag_ray.engine.config import EngineConfig
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.options import WorkerOptions, build_options, count_images
from drag_ray.storage.artifacts import write_parquet

RERANK = {"task": "rerank", "depth": 50, "rerank": {"candidates": 50, "window": 20, "step": 10}}
ASKED = question_images.MAX_IMAGES


@pytest.mark.parametrize(
    ("agent", "num_images"),
    [
        ({"max_iterations": 4, "top_k": 2}, 3 * 2 + ASKED),
        ({"max_iterations": 4, "top_k": 2, "image_searches": 1}, 2 + ASKED),
        ({**RERANK, "tools": ("zoom",), "max_iterations": 3, "max_images": 5}, 4 * (20 + ASKED) + 5),
        ({**RERANK, "image_searches": 1}, 2 * (20 + ASKED)),
        ({**RERANK, "rerank": {"candidates": 6}}, 6 + ASKED),
    ],
)
def test_a_prompt_can_hold_what_the_task_shows(
    options: WorkerOptions, tmp_path: Path, agent: dict[str, Any], num_images: int
) -> None:
    stores = (tmp_path / image_store.DIR_NAME, tmp_path / question_images.DIR_NAME)
    stores[1].mkdir()
    agent_config = AgentConfig(**agent, page_view="image")
    assert count_images(dataclasses.replace(options, agent=agent_config, image_dirs=stores)) == num_images


@pytest.mark.parametrize("num_own", [0, 1])
def test_images_are_of_the_questions_that_are_asked(tmp_path: Path, num_own: int) -> None:
    index_dir, written_dir = tmp_path / "index", tmp_path / "questions"
    (written_dir / question_images.DIR_NAME).mkdir(parents=True)
    own = [build_question() for _ in range(num_own)]
    write_parquet(index_dir / QUESTIONS_NAME, schemas.to_table(own, schemas.QUESTIONS))
    rest = (AgentConfig(), EngineConfig(), RolloutConfig(), index_dir, tmp_path / "run")
    assert build_options(*rest).image_dirs == ()
    shown = build_options(*rest, written_dir=written_dir)
    stores = (index_dir / image_store.DIR_NAME, written_dir / question_images.DIR_NAME)
    assert shown.image_dirs == (() if num_own else stores)
    assert count_images(shown) == (0 if num_own else ASKED)
