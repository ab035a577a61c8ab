"""Reinforcement learning of a policy that puts pictures in order, in which each question has two of its own."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from small_index import write_index

from drag_ray.corpus.image_store import DIR_NAME, ImageStore
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity
from drag_ray.types import Evidence, Page, Question

STEPS = 2
NUM_QUESTIONS, NUM_CANDIDATES = 4, 2


def configure(run_dir: Path, model: Path, *, engine: dict[str, Any] | None = None, **finetune: Any) -> RunConfig:
    """Options of the run, with others of its engine and of its training."""
    windows = {"candidates": NUM_CANDIDATES, "window": NUM_CANDIDATES, "step": 1}
    return RunConfig.model_validate(
        {
            "run_dir": run_dir,
            "agent": {
                **{"task": "rerank", "rerank": windows, "depth": NUM_CANDIDATES, "top_k": 1, "page_view": "image"},
                **{"max_tokens": 8, "thinking": False},
            },
            "engine": {
                **{"model": str(model), "device": "cpu", "dtype": "float32", "max_model_len": 1024, "max_num_seqs": 8},
                "enforce_eager": True,
                **(engine or {}),
            },
            "rollout": {"concurrent_rollouts": 4, "chunk_rollouts": 2, "flush_s": 0, "workers_per_engine": 1},
            "process": {"reward": "tests.support.cases.own_rewards:reward_letters"},
            "format": {"validation_fraction": 0.25},
            "finetune": {
                **{"device": "cpu", "dtype": "float32", "learning_rate": 2e-3, "lora_r": 4, "warmup_ratio": 0.0},
                **{"target_modules": ["q_proj", "v_proj"], "batch_size": 2, "merge": False},
                **finetune,
            },
            "rl": {
                **{"steps": STEPS, "questions_per_step": 2, "samples_per_question": 2, "refills": 1, "validation_steps": 2},
                "max_without_search": 1.0,
            },
        }
    )


def write_pictures(run_dir: Path, size: tuple[int, int] = (128, 96)) -> None:
    """The finished index of pages that are pictures alone."""
    draw = np.random.default_rng(0)
    with StageFolder(run_dir / "index", Identity("index", {}, {})) as folder:
        store = ImageStore(folder.path / DIR_NAME)
        pages: list[Page] = []
        questions: list[Question] = []
        for number in range(NUM_QUESTIONS):
            places = tuple(Evidence(f"{number}{name}.pdf", 1) for name in "ab")
            for place in places:
                noise = Image.fromarray(draw.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize(size)
                pages.append(Page(place.file, place.page_number, 1, "", image=store.write(noise)))
            questions.append(Question(f"q{number}", "Which is it?", places[-1:], split="train", candidates=places))
        write_index(folder.path, pages, questions)
        folder.finish({})
