"""Rollouts with tools of text and of images on a real engine: what it was shown and wrote, and what training is shown of it.

The engine is a Qwen3-VL of two layers with random weights. It draws tokens, in whose place those of calls are put.
"""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_process import run_in_process
from PIL import Image
from qwen3_vl_shapes import SHAPES_TINY, write_model
from small_index import write_index
from transformers import AutoTokenizer

from drag_ray import artifacts, schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.corpus.image_store import ImageStore, ImageStores
from drag_ray.corpus.page_images import DIR_NAME
from drag_ray.engine.chat_template import check_functions_shown
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.conversation import read_conversation
from drag_ray.engine.embedded import embedded_model_dir
from drag_ray.engine.generate import Generation, ImageSource, Request, list_images
from drag_ray.engine.tokens import IGNORED_LABEL, tokenize_conversation
from drag_ray.engine.vllm import VllmEngine
from drag_ray.errors import DataError
from drag_ray.finetune.collator import RowCollator
from drag_ray.finetune.images import open_training_images
from drag_ray.finetune.methods.grpo import GRPO, StepCollator
from drag_ray.finetune.methods.sft import SFT
from drag_ray.finetune.tokenized_rows import RowTokenizer
from drag_ray.format.config import FormatConfig
from drag_ray.format.layout import SHOWN_COLUMNS, Layout
from drag_ray.format.row_format import load_format
from drag_ray.format.tables import ScoredPart
from drag_ray.process.config import ProcessConfig
from drag_ray.process.trajectories import read_records, select_trajectories
from drag_ray.process.turns import explode_turns, summarise_trajectories
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Page, Question, Trajectory

AGENT = AgentConfig(
    protocol="tools",
    tools=("search", "read_page", "grep", "view_page", "crop", "zoom", "select_images"),
    query_mode="rewrite",
    max_iterations=6,
    max_tokens=4,
    thinking=False,
)
PROTOCOL = get_protocol("tools")
FINDS = PROTOCOL.render_search("rotor speed")
VIEWS = render_call("view_page", {"file": "b.pdf", "page": 2})
CROPS = render_call("crop", {"image": "image_1", "box": [0, 0, 500, 500]})
ZOOMS = render_call("zoom", {"image": "image_2", "x": 250, "y": 250, "factor": 3})
KEEPS = render_call("select_images", {"images": ["image_2"]})
ANSWERS = PROTOCOL.render_answer("340 rpm", (Evidence("b.pdf", 2),))
OF_TEXT = (
    PROTOCOL.render_search("fuel"),
    render_call("grep", {"file": "b.pdf", "text": "340"}),
    render_call("read_page", {"file": "b.pdf", "page": 2}),
    FINDS,
    ANSWERS,
)
OF_IMAGES = (FINDS, VIEWS, CROPS, ZOOMS, ANSWERS)
SELECTIVE = (FINDS, VIEWS, CROPS, KEEPS, ANSWERS)
QUESTION = Question("q1", "How quickly may it turn?", (Evidence("b.pdf", 2),), ("340 rpm",), split="train")


@dataclass(frozen=True)
class Rolled:
    """Rollouts of `OF_TEXT`, `OF_IMAGES` and `SELECTIVE`, and of each image the bytes and places that the engine had of it."""

    trajectories: list[Trajectory]
    pixel_hashes: dict[str, str]
    num_places: dict[str, int]


def hash_pixels(pixels: torch.Tensor) -> str:
    """A hash of the bytes of a picture; vLLM hands them on as they are, the trainer around 0 (mean and deviation are .5)."""
    if pixels.dtype is not torch.uint8:
        pixels = ((pixels.double() * 0.5 + 0.5) * 255).round().to(torch.uint8)
    return hashlib.sha256(pixels.numpy().tobytes()).hexdigest()


def roll_out(model: str, index_dir: Path, images_dir: Path, results: Connection) -> None:
    """Roll out on an engine that draws tokens, which stand for the calls that are then read. In a process of its own."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    stores = ImageStores((images_dir, index_dir / DIR_NAME))

    async def run() -> Rolled:
        config = EngineConfig(model=model, dtype="float32", max_model_len=4096, enforce_eager=True, load_format="dummy")
        engine = VllmEngine(config, ImageSource(stores.open, per_prompt=8))
        searcher = Searcher(index_dir / "search_index")
        environment = SearchEnvironment(searcher, AGENT.top_k, AGENT.depth)

        async def roll_out_as(replies: Sequence[str], number: int) -> Trajectory:
            async def replay(request: Request) -> Generation:
                drawn = await engine(request)
                text = replies[sum(message["role"] == "assistant" for message in request.messages)]
                tokens = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
                return replace(drawn, text=text, completion_token_ids=tokens, completion_logprobs=(), finish_reason="stop")

            rollouts = Rollouts(AGENT, Policy(model), replay, environment, "index", pages=searcher, images=stores)
            return await rollouts.run(RolloutTask(QUESTION, number, "default", 7))

        scripts = (OF_TEXT, OF_IMAGES, SELECTIVE)
        trajectories = [await roll_out_as(replies, number) for number, replies in enumerate(scripts)]
        keys = {key for trajectory in trajectories for key in list_images(json.loads(trajectory.messages))}
        inputs: Any = engine._image_inputs
        processed = {key: inputs.process(key) for key in keys}
        pixels = {key: hash_pixels(image.features["pixel_values"].data) for key, image in processed.items()}
        return Rolled(trajectories, pixels, {key: image.place.length for key, image in processed.items()})

    results.send(asyncio.run(run()))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_model(tmp_path_factory.mktemp("models") / "tiny", embedded_model_dir(), SHAPES_TINY, max_pixels=256 * 256)
    check_functions_shown(str(folder), PROTOCOL.list_functions(AGENT.load_tools().functions))
    return str(folder)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    noise = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    picture = ImageStore(folder / "index" / DIR_NAME).write(Image.fromarray(noise).resize((600, 400)))
    pages = [
        Page("a.pdf", 1, 1, "rotor blade"),
        Page("b.pdf", 2, 2, "The rotor speed limit is 340 rpm.", image=picture),
        Page("c.pdf", 1, 1, "fuel"),
    ]
    write_index(folder / "index", pages, [QUESTION])
    return folder


@pytest.fixture(scope="module")
def rolled(model: str, run_dir: Path) -> Rolled:
    rolled = run_in_process(roll_out, model, run_dir / "index", run_dir / "images")
    assert [trajectory.error for trajectory in rolled.trajectories] == [""] * 3
    return rolled


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
    images = open_training_images(model, [run_dir / "images", run_dir / "index" / DIR_NAME])
    return RowTokenizer(AutoTokenizer.from_pretrained(model), 4096, images)


def decode_learned(labels: torch.Tensor, tokenizer: Any) -> str:
    return tokenizer.decode(labels[labels != IGNORED_LABEL])


def test_the_tools_ran_and_the_model_was_told_what_they_found(rolled: Rolled) -> None:
    trajectory, *_ = rolled.trajectories
    assert [turn.tool for turn in trajectory.turns] == ["", "grep", "read_page", "", ""]
    assert [turn.tool_error for turn in trajectory.turns] == [""] * 5
    told = [message["content"] for message in json.loads(trajectory.messages) if message["role"] == "tool"]
    assert "b.pdf#2: The rotor speed limit is 340 rpm." in told[1]
    assert told[2] == "b.pdf#2 of 2\nThe rotor speed limit is 340 rpm."


def test_the_tools_of_images_ran_and_the_prompts_hold_the_places_of_what_they_show(rolled: Rolled, model: str) -> None:
    mark = AutoTokenizer.from_pretrained(model).convert_tokens_to_ids("<|image_pad|>")
    _, trajectory, selective = rolled.trajectories
    assert [turn.tool for turn in trajectory.turns] == ["", "view_page", "crop", "zoom", ""]
    assert [turn.tool_error for turn in (*trajectory.turns, *selective.turns)] == [""] * 10
    assert [turn.prompt_token_ids.count(mark) for turn in trajectory.turns] == [0, 0, 1, 2, 3]
    assert [turn.prompt_token_ids.count(mark) for turn in selective.turns] == [0, 0, 1, 2, 1]
    assert [turn.hidden_images for turn in selective.turns] == [(), (), (), (), (0,)]


def test_training_is_shown_the_tokens_that_the_engine_was(rolled: Rolled, model: str, tmp_path: Path) -> None:
    trajectory, *_ = rolled.trajectories
    [row] = format_rows([trajectory], "rejection", tmp_path)
    tokens = tokenize_conversation(read_conversation(row), tokenizer := AutoTokenizer.from_pretrained(model))
    for turn in trajectory.turns:
        start, drawn = len(turn.prompt_token_ids), turn.completion_token_ids
        assert tuple(tokens["input_ids"][:start]) == turn.prompt_token_ids
        assert tuple(tokens["labels"][start : start + len(drawn)]) == drawn
    num_learned = sum(label != IGNORED_LABEL for label in tokens["labels"])
    assert num_learned == sum(len(turn.completion_token_ids) + 1 for turn in trajectory.turns)  # each with its end of turn
    assert '"name": "read_page"' in tokenizer.decode(trajectory.turns[0].prompt_token_ids)


def test_a_batch_learns_what_was_written_between_the_observations_from_the_pixels_that_the_engine_had(
    rolled: Rolled, model: str, run_dir: Path, tmp_path: Path
) -> None:
    trajectory = rolled.trajectories[1]
    [row] = format_rows([trajectory], "rejection", tmp_path)
    tokenize = open_tokenizer(model, run_dir)
    tokenizer, images = tokenize.tokenizer, tokenize.images
    batch = RowCollator(tokenizer.pad_token_id, images)(SFT(rows="rejection").tokenize([row], tokenize).rows)
    [ids], [labels] = batch["input_ids"], batch["labels"]
    assert decode_learned(labels, tokenizer) == "".join(f"{reply}<|im_end|>" for reply in OF_IMAGES)
    mark = tokenizer.convert_tokens_to_ids("<|image_pad|>")
    is_first = (ids == mark) & (ids.roll(1) != mark)
    unexpanded = ids[(ids != mark) | is_first].tolist()  # one token for each image, as turns have them
    assert tuple(unexpanded[: len(trajectory.turns[-1].prompt_token_ids)]) == trajectory.turns[-1].prompt_token_ids
    keys = list_images(json.loads(trajectory.messages))
    starts = is_first.nonzero().flatten().tolist()
    lengths = [int((ids[start:] != mark).nonzero()[0]) for start in starts]
    assert lengths == [rolled.num_places[key] for key in keys]
    pixels = batch["pixel_values"].split(batch["image_grid_thw"].prod(dim=-1).tolist())
    assert [hash_pixels(of_image) for of_image in pixels] == [rolled.pixel_hashes[key] for key in keys]
    assert len(set(keys)) == 3


def test_steps_are_drawn_from_the_prompts_of_the_engine_also_those_that_images_have_left(
    rolled: Rolled, model: str, run_dir: Path, tmp_path: Path
) -> None:
    rows = [row | {"advantage": 1.0} for row in format_rows(rolled.trajectories, "rl_steps", tmp_path)]
    tokenize = open_tokenizer(model, run_dir)
    tokenized = GRPO().tokenize(rows, tokenize)
    batch = StepCollator(tokenize.tokenizer.pad_token_id, tokenize.images)(tokenized.rows)
    assert [decode_learned(labels, tokenize.tokenizer) for labels in batch["labels"]] == [*OF_TEXT, *OF_IMAGES, *SELECTIVE]
    assert [len(row["image_keys"]) for row in tokenized.rows] == [*[0] * 5, *[0, 0, 1, 2, 3], *[0, 0, 1, 2, 1]]


def test_a_batch_of_another_prompt_or_of_other_pixels_is_refused(
    rolled: Rolled, model: str, run_dir: Path, tmp_path: Path
) -> None:
    rows = [row | {"advantage": 1.0} for row in format_rows(rolled.trajectories, "rl_steps", tmp_path)]
    other = write_model(
        tmp_path / "other", embedded_model_dir(), SHAPES_TINY, max_pixels=128 * 128
    )  # which cuts images otherwise
    with pytest.raises(DataError, match=r"row 8: the prompt of a step becomes \d+ tokens with 1 images.*Set engine\.model"):
        GRPO().tokenize(rows, open_tokenizer(str(other), run_dir))
    told = json.loads(json.dumps(rows[1]))
    told["prompt"][-1]["content"][0]["text"] += " "
    with pytest.raises(DataError, match=r"row 1: the prompt of a step becomes \d+ tokens with 0 images"):
        GRPO().tokenize([told], open_tokenizer(model, run_dir))
    tokenize = open_tokenizer(model, run_dir)
    [step] = GRPO().tokenize(rows[8:9], tokenize).rows
    key = step["image_keys"][-1]
    path = run_dir / "images" / key
    whole = path.read_bytes()
    path.write_bytes((run_dir / "index" / DIR_NAME / step["image_keys"][0]).read_bytes())
    with pytest.raises(DataError, match="damaged: the hash of its bytes"):
        StepCollator(tokenize.tokenizer.pad_token_id, tokenize.images)([step])
    path.write_bytes(whole)
