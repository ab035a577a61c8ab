"""Rollouts on the shared Qwen3-VL (`vision_engine`), which draws tokens, in whose place those of calls are put."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer
from vision_engine import SharedEngine, VisionEngine

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.prompts import list_shown_functions
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.corpus.image_degradation import DegradationConfig
from drag_ray.corpus.image_store import DIR_NAME, ImageStores
from drag_ray.engine.generate import Generation, Request, list_images
from drag_ray.engine.models.chat_template import check_functions_shown
from drag_ray.engine.models.tokens import IGNORED_LABEL
from drag_ray.finetune.methods.grpo import GRPO, StepCollator
from drag_ray.finetune.rows.images import open_training_images
from drag_ray.finetune.rows.tokenized_rows import RowTokenizer
from drag_ray.format.config import FormatConfig
from drag_ray.format.layout import SHOWN_COLUMNS, Layout
from drag_ray.format.row_format import load_format
from drag_ray.format.tables import ScoredPart
from drag_ray.process.config import ProcessConfig
from drag_ray.process.trajectories import read_records, select_trajectories
from drag_ray.process.turns import explode_turns, summarise_trajectories
from drag_ray.rollout.degraded_images import DegradedImages, DegradedSearcher
from drag_ray.search.searcher import Searcher
from drag_ray.storage import artifacts
from drag_ray.types import Question, Trajectory

IMAGE_MARK = "<|image_pad|>"
Scripts = Sequence[Sequence[str]]
WORSE = DegradationConfig(share=1, kinds=("blur",))


@dataclass(frozen=True)
class Rolled:
    """Rollouts, and of each image that they have shown the bytes and places that the engine had of it."""

    trajectories: list[Trajectory]
    pixel_hashes: dict[str, str]
    num_places: dict[str, int]


def hash_pixels(pixels: torch.Tensor) -> str:
    """A hash of the bytes of a picture; vLLM hands them on as they are, the trainer around 0 (mean and deviation are .5)."""
    if pixels.dtype is not torch.uint8:
        pixels = ((pixels.double() * 0.5 + 0.5) * 255).round().to(torch.uint8)
    return hashlib.sha256(pixels.numpy().tobytes()).hexdigest()


def roll_out(engine: VisionEngine, run_dir: Path, agent: AgentConfig, question: Question, *scripts: Scripts) -> Rolled:
    """A rollout for each of the first scripts, whose replies are those of its turns, over the index of a run; those of an empty
    one are the model's own, drawn as calls. Then those whose pages are shown with worse pictures, as `WORSE` makes them."""
    check_functions_shown(engine.model, list_shown_functions(agent))
    return engine.call(_roll_out, engine.model, run_dir, agent, question, *scripts)


async def _roll_out(
    engine: SharedEngine,
    model: str,
    run_dir: Path,
    agent: AgentConfig,
    question: Question,
    scripts: Scripts,
    worse_scripts: Scripts = (),
) -> Rolled:
    tokenizer = AutoTokenizer.from_pretrained(model)
    index_dir = run_dir / "index"
    stores = ImageStores((run_dir / "images", index_dir / DIR_NAME))
    engine.open_image = stores.open
    searcher = Searcher(index_dir / "search_index")
    worse = DegradedSearcher(searcher.index_dir, DegradedImages(WORSE, stores))

    async def roll_out_as(replies: Sequence[str], number: int) -> Trajectory:
        pages = searcher if number < len(scripts) else worse
        environment = SearchEnvironment(pages, agent.top_k, agent.depth)

        async def replay(request: Request) -> Generation:
            drawn = await engine(request)
            text = replies[sum(message["role"] == "assistant" for message in request.messages)]
            tokens = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
            return replace(drawn, text=text, completion_token_ids=tokens, completion_logprobs=(), finish_reason="stop")

        forced = agent.model_copy(update={"forced_calls": True, "max_tokens": 600})
        asked, reply = (agent, replay) if replies else (forced, engine)
        rollouts = Rollouts(asked, Policy(model), reply, environment, "index", pages=pages, images=stores)
        return await rollouts.run(RolloutTask(question, number, "default", 7))

    trajectories = [await roll_out_as(replies, number) for number, replies in enumerate([*scripts, *worse_scripts])]
    keys = {key for trajectory in trajectories for key in list_images(json.loads(trajectory.messages))}
    inputs: Any = engine._image_inputs
    processed = {key: inputs.process(key) for key in keys}
    pixels = {key: hash_pixels(image.features["pixel_values"].data) for key, image in processed.items()}
    return Rolled(trajectories, pixels, {key: image.place.length for key, image in processed.items()})


def format_rows(trajectories: Sequence[Trajectory], kind: str, folder: Path) -> list[dict[str, Any]]:
    """The rows of a format, by way of the files that the stages write."""
    path = folder / f"{kind}.parquet"
    artifacts.write_parquet(path, schemas.to_table(trajectories, schemas.TRAJECTORIES))
    selected = select_trajectories(read_records([path])).frame
    turns = explode_turns(selected, ProcessConfig())
    part = ScoredPart(turns, summarise_trajectories(selected, turns))
    row_format = load_format(kind)
    shown = part.trajectories.select("trajectory_id", *SHOWN_COLUMNS)
    layout = Layout(has_tools=True, has_images=True)
    return layout.apply(row_format.build_rows(part, FormatConfig()), row_format.schema, shown).to_pylist()


def open_tokenizer(model: str, run_dir: Path) -> RowTokenizer:
    """The tokenizer of rows that the trainer has."""
    images = open_training_images(model, [run_dir / "images", run_dir / "index" / DIR_NAME])
    return RowTokenizer(AutoTokenizer.from_pretrained(model), 4096, images)


def decode_learned(labels: torch.Tensor, tokenizer: Any) -> str:
    """The text that is learned of a row."""
    return tokenizer.decode(labels[labels != IGNORED_LABEL])


def read_steps(rolled: Rolled, model: str, run_dir: Path, folder: Path) -> tuple[list[str], list[int]]:
    """The reply that each step of reinforcement learning is learned from, and the number of pictures that it was drawn from."""
    tokenize = open_tokenizer(model, run_dir)
    tokenized = GRPO().tokenize(format_steps(rolled, folder), tokenize)
    batch = StepCollator(tokenize.tokenizer.pad_token_id, tokenize.images)(tokenized.rows)
    learned = [decode_learned(labels, tokenize.tokenizer) for labels in batch["labels"]]
    return learned, [len(row["image_keys"]) for row in tokenized.rows]


def format_steps(rolled: Rolled, folder: Path) -> list[dict[str, Any]]:
    """A row for each reply, all with the same advantage."""
    return [row | {"advantage": 1.0} for row in format_rows(rolled.trajectories, "rl_steps", folder)]


def check_pixels(batch: Any, num_tokens: int, keys: Sequence[str], rolled: Rolled, tokenizer: Any) -> list[int]:
    """That a batch of one row has the pictures of these keys as the engine had them, each in as many places.

    Returns:
        The first `num_tokens` tokens of the row with one for each picture, as turns have them.
    """
    [ids] = batch["input_ids"]
    mark = tokenizer.convert_tokens_to_ids(IMAGE_MARK)
    is_first = (ids == mark) & (ids.roll(1) != mark)
    starts = is_first.nonzero().flatten().tolist()
    assert [int((ids[start:] != mark).nonzero()[0]) for start in starts] == [rolled.num_places[key] for key in keys]
    pixels = batch["pixel_values"].split(batch["image_grid_thw"].prod(dim=-1).tolist())
    assert [hash_pixels(of_image) for of_image in pixels] == [rolled.pixel_hashes[key] for key in keys]
    return ids[(ids != mark) | is_first].tolist()[:num_tokens]
