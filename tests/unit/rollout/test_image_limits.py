"""How many images a prompt can hold, which an engine is told when it starts."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from drag_ray.agent.config import AgentConfig
from drag_ray.corpus import page_images, question_images
from drag_ray.engine.config import EngineConfig
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.options import WorkerOptions, build_options, count_images

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
    stores = (tmp_path / page_images.DIR_NAME, tmp_path / question_images.DIR_NAME)
    stores[1].mkdir()
    agent_config = AgentConfig(**agent, page_view="image")
    assert count_images(dataclasses.replace(options, agent=agent_config, image_dirs=stores)) == num_images


def test_questions_that_were_written_have_images_unless_those_of_the_index_do(tmp_path: Path) -> None:
    index_dir, written_dir = tmp_path / "index", tmp_path / "questions"
    rest = (AgentConfig(), EngineConfig(), RolloutConfig(), index_dir, tmp_path / "run")
    assert build_options(*rest, written_dir=written_dir).image_dirs == ()
    own, written = (folder / question_images.DIR_NAME for folder in (index_dir, written_dir))
    written.mkdir(parents=True)
    assert build_options(*rest).image_dirs == ()
    shown = build_options(*rest, written_dir=written_dir)
    assert (shown.image_dirs, count_images(shown)) == ((index_dir / page_images.DIR_NAME, written), ASKED)
    own.mkdir(parents=True)
    assert build_options(*rest, written_dir=written_dir).image_dirs[1] == own
