"""Reinforcement learning while collecting on what the policy sees: a Qwen3-VL of two layers puts pictures in order."""

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from picture_rl import NUM_CANDIDATES, STEPS, configure, write_pictures
from replayed_rollouts import Rolled, check_pixels, hash_pixels, open_tokenizer
from transformers import AutoTokenizer
from vision_engine import write_vision_model

from drag_ray.corpus.image_store import DIR_NAME, ImageStore
from drag_ray.engine.generate import ImageSource
from drag_ray.engine.image_inputs import ImageInputs
from drag_ray.engine.models.pretrained import load_model
from drag_ray.engine.models.tokens import IGNORED_LABEL
from drag_ray.engine.vllm import build_engine_args
from drag_ray.errors import DataError
from drag_ray.finetune.methods.grpo import GRPO, StepCollator
from drag_ray.finetune.trainers.policy_gradient import compare_engine
from drag_ray.finetune.trainers.trained_tokens import compute_log_probabilities
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_stages
from drag_ray.pipeline.stages import STAGES
from drag_ray.rl.learning import locate_step
from drag_ray.rollout.journal import read_trajectories

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Run:
    """A run whose stage rl has come to its end, and its options."""

    config: RunConfig

    @property
    def stage_dir(self) -> Path:
        return self.config.run_dir / "rl"

    @property
    def model(self) -> str:
        return self.config.engine.model

    def read_rows(self, step: int) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (locate_step(self.stage_dir, step) / "rows.jsonl").read_text().splitlines()]

    def read_curve(self) -> list[dict[str, Any]]:
        points = map(json.loads, (self.stage_dir / "curve.jsonl").read_text().splitlines())
        return [point for point in points if "reward" in point]

    def collate(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Tokenized rows as the trainer gives them to the model."""
        opened = open_tokenizer(self.model, self.config.run_dir)
        return StepCollator(opened.tokenizer.pad_token_id, opened.images)(rows)


@pytest.fixture(scope="module")
def run(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("rl_images")
    write_pictures(folder / "run")
    config = configure(folder / "run", write_vision_model(folder / "model"))
    run_stages([STAGES["rl"]], config)
    return Run(config)


def process_as_engine(run: Run, keys: set[str]) -> dict[str, Any]:
    """Pictures as an engine with these options makes them ready."""
    store = ImageStore(run.config.run_dir / "index" / DIR_NAME)
    engine = SimpleNamespace(
        model_config=build_engine_args(run.config.engine).create_model_config(),
        renderer=SimpleNamespace(mm_processor_cache=None),
        get_tokenizer=lambda: AutoTokenizer.from_pretrained(run.model),
    )
    inputs = ImageInputs(engine, ImageSource(store.open, NUM_CANDIDATES), num_threads=1)
    return {key: inputs.process(key) for key in sorted(keys)}


def test_the_trainer_has_the_tokens_the_places_and_the_pixels_that_the_engine_had(run: Run) -> None:
    opened = open_tokenizer(run.model, run.config.run_dir)
    shown = 0
    for step in range(1, STEPS + 1):
        rollouts = {row["id"]: row for row in read_trajectories(locate_step(run.stage_dir, step)).to_pylist()}
        rows = run.read_rows(step)
        processed = process_as_engine(run, {key for row in rows for key in row["images"]})
        pixels = {key: hash_pixels(image.features["pixel_values"].data) for key, image in processed.items()}
        assert len(set(pixels.values())) == len(pixels)
        rolled = Rolled([], pixels, {key: image.place.length for key, image in processed.items()})
        for row, tokenized in zip(rows, GRPO().tokenize(rows, opened).rows, strict=True):
            [turn] = rollouts[row["trajectory_id"]]["turns"]
            drawn = [label for label in tokenized["labels"] if label != IGNORED_LABEL]
            assert drawn == turn["reply"]["completion_token_ids"]
            prompt = turn["reply"]["prompt_token_ids"]
            batch = run.collate([tokenized])
            assert check_pixels(batch, len(prompt), row["images"], rolled, opened.tokenizer) == prompt
            shown += len(row["images"])
    assert shown >= STEPS * 2 * NUM_CANDIDATES


def test_what_the_engine_was_not_shown_is_refused(run: Run) -> None:
    opened = open_tokenizer(run.model, run.config.run_dir)
    row = run.read_rows(1)[0]
    swapped = {**row, "images": row["images"][::-1]}  # as many pixels, in the other order
    with pytest.raises(DataError, match=r"tokens with 2 images, which are not those that the engine drew it from"):
        GRPO().tokenize([swapped], opened)


def test_replies_are_as_likely_to_the_engine_as_to_the_trainer_that_sees_the_same_pictures(run: Run) -> None:
    points = run.read_curve()
    assert [point["step"] for point in points] == list(range(1, STEPS + 1))
    assert [point["rows_too_long"] for point in points] == [0] * STEPS
    for point in points:  # the second is drawn with the adapter that the first has trained
        assert point["rows"]
        assert abs(point["engine_kl"]) < 1e-4
    assert points[-1]["kl"] > 1e-5
    rows = GRPO().tokenize(run.read_rows(1), open_tokenizer(run.model, run.config.run_dir)).rows
    swapped = [{**row, "image_keys": row["image_keys"][::-1]} for row in rows]
    model = load_model(run.model, "float32").eval()
    own, others = (measure_engine_gap(model, run.collate(of_rows)) for of_rows in (rows, swapped))
    assert own < 1e-3
    assert others > 50 * own  # so the numbers above would tell of pictures that are not the engine's


def measure_engine_gap(model: Any, batch: dict[str, torch.Tensor]) -> float:
    """The furthest that a drawn token is from what it was to the engine, in nats."""
    with torch.no_grad():
        scored, is_drawn = compute_log_probabilities(model, batch, fused=False, temperature=1.0)
    return float(compare_engine(batch, scored[is_drawn]).abs().max())
