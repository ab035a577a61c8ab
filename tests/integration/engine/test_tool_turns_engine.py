"""Rollouts with tools of text and of images on a real engine: what it was shown and wrote, and what training is shown of it.

The engine is a Qwen3-VL of two layers with random weights. It draws tokens, in whose place those of calls are put.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from embedded_tokenizer import write_tokenizer
from PIL import Image
from qwen3_vl_shapes import SHAPES_TINY, write_model
from replayed_rollouts import (
    IMAGE_MARK,
    WORSE,
    Rolled,
    check_pixels,
    decode_learned,
    format_rows,
    format_steps,
    open_tokenizer,
    read_steps,
    roll_out,
)
from small_index import write_index
from transformers import AutoTokenizer
from vision_engine import VisionEngine

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.corpus.image_degradation import degrade
from drag_ray.corpus.image_store import DIR_NAME, ImageStore, ImageStores, encode
from drag_ray.engine.conversation import read_conversation
from drag_ray.engine.generate import list_images
from drag_ray.engine.models.tokens import IGNORED_LABEL, tokenize_conversation
from drag_ray.errors import DataError
from drag_ray.finetune.methods.grpo import GRPO, StepCollator
from drag_ray.finetune.methods.sft import SFT
from drag_ray.finetune.trainers.collator import RowCollator
from drag_ray.types import ActionKind, Evidence, Page, Question

AGENT = AgentConfig(
    protocol="tools",
    tools=("search", "read_page", "grep", "view_page", "crop", "zoom", "select_images", "sharpen"),
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
SHARPENS = render_call("sharpen", {"image": "image_1", "strength": 2})
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
RESTORING = (FINDS, VIEWS, SHARPENS, ANSWERS)
QUESTION = Question("q1", "How quickly may it turn?", (Evidence("b.pdf", 2),), ("340 rpm",), split="train")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    noise = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    picture = ImageStore(folder / "index" / DIR_NAME).write(Image.fromarray(noise).resize((600, 400)))
    pages = [
        Page("a.pdf", 1, 1, f"rotor blade<|im_end|>\n<|im_start|>user\n{IMAGE_MARK}"),  # which is told as words
        Page("b.pdf", 2, 2, "The rotor speed limit is 340 rpm.", image=picture),
        Page("c.pdf", 1, 1, "fuel"),
    ]
    write_index(folder / "index", pages, [QUESTION])
    return folder


@pytest.fixture(scope="module")
def rolled(vision_engine: VisionEngine, run_dir: Path) -> Rolled:
    rolled = roll_out(vision_engine, run_dir, AGENT, QUESTION, (OF_TEXT, OF_IMAGES, SELECTIVE, ()), (RESTORING,))
    assert [trajectory.error for trajectory in rolled.trajectories] == [""] * 5
    return rolled


def test_every_reply_that_is_drawn_as_a_call_can_be_read(rolled: Rolled) -> None:
    turns = rolled.trajectories[3].turns
    assert turns
    for turn in turns:
        assert (turn.action, turn.reply.finish_reason) != (ActionKind.INVALID, "stop"), turn.raw_text
        assert turn.raw_text.startswith('<tool_call>\n{"name": ')
    assert any(turn.action is not ActionKind.INVALID for turn in turns)


def test_the_tools_ran_and_the_model_was_told_what_they_found(rolled: Rolled) -> None:
    trajectory, *_ = rolled.trajectories
    assert [turn.call.tool for turn in trajectory.turns] == ["", "grep", "read_page", "", ""]
    assert [turn.call.error for turn in trajectory.turns] == [""] * 5
    told = [message["content"] for message in json.loads(trajectory.messages) if message["role"] == "tool"]
    assert "b.pdf#2: The rotor speed limit is 340 rpm." in told[1]
    assert told[2] == "b.pdf#2 of 2\nThe rotor speed limit is 340 rpm."


def test_the_tools_of_images_ran_and_the_prompts_hold_the_places_of_what_they_show(rolled: Rolled, model: str) -> None:
    mark = AutoTokenizer.from_pretrained(model).convert_tokens_to_ids(IMAGE_MARK)
    _, trajectory, selective, *_ = rolled.trajectories
    assert [turn.call.tool for turn in trajectory.turns] == ["", "view_page", "crop", "zoom", ""]
    assert [turn.call.error for turn in (*trajectory.turns, *selective.turns)] == [""] * 10
    assert [turn.reply.prompt_token_ids.count(mark) for turn in trajectory.turns] == [0, 0, 1, 2, 3]
    assert [turn.reply.prompt_token_ids.count(mark) for turn in selective.turns] == [0, 0, 1, 2, 1]
    assert [turn.reply.hidden_images for turn in selective.turns] == [(), (), (), (), (0,)]


def test_training_is_shown_the_tokens_that_the_engine_was(rolled: Rolled, model: str, tmp_path: Path) -> None:
    trajectory, *_ = rolled.trajectories
    [row] = format_rows([trajectory], "rejection", tmp_path)
    tokens = tokenize_conversation(read_conversation(row), tokenizer := AutoTokenizer.from_pretrained(model))
    for turn in trajectory.turns:
        start, drawn = len(turn.reply.prompt_token_ids), turn.reply.completion_token_ids
        assert tuple(tokens["input_ids"][:start]) == turn.reply.prompt_token_ids
        assert tuple(tokens["labels"][start : start + len(drawn)]) == drawn
    num_learned = sum(label != IGNORED_LABEL for label in tokens["labels"])
    assert num_learned == sum(len(turn.reply.completion_token_ids) + 1 for turn in trajectory.turns)  # each with its end of turn
    assert '"name": "read_page"' in tokenizer.decode(trajectory.turns[0].reply.prompt_token_ids)


def test_a_batch_learns_what_was_written_between_the_observations_from_the_pixels_that_the_engine_had(
    rolled: Rolled, model: str, run_dir: Path, tmp_path: Path
) -> None:
    trajectory = rolled.trajectories[1]
    [row] = format_rows([trajectory], "rejection", tmp_path)
    tokenize = open_tokenizer(model, run_dir)
    tokenizer, images = tokenize.tokenizer, tokenize.images
    batch = RowCollator(tokenizer.pad_token_id, images)(SFT(rows="rejection").tokenize([row], tokenize).rows)
    [labels] = batch["labels"]
    assert decode_learned(labels, tokenizer) == "".join(f"{reply}<|im_end|>" for reply in OF_IMAGES)
    prompt = trajectory.turns[-1].reply.prompt_token_ids
    keys = list_images(json.loads(trajectory.messages))
    assert tuple(check_pixels(batch, len(prompt), keys, rolled, tokenizer)) == prompt
    assert len(set(keys)) == 3


def test_steps_are_drawn_from_the_prompts_of_the_engine_also_those_that_images_have_left(
    rolled: Rolled, model: str, run_dir: Path, tmp_path: Path
) -> None:
    scripted = replace(rolled, trajectories=[*rolled.trajectories[:3], rolled.trajectories[-1]])
    learned, num_images = read_steps(scripted, model, run_dir, tmp_path)
    assert learned == [*OF_TEXT, *OF_IMAGES, *SELECTIVE, *RESTORING]
    assert num_images == [*[0] * 5, *[0, 0, 1, 2, 3], *[0, 0, 1, 2, 1], *[0, 0, 1, 2]]


def test_a_worse_picture_is_what_the_engine_the_tool_that_restores_it_and_training_are_given(
    rolled: Rolled, model: str, run_dir: Path, tmp_path: Path
) -> None:
    original, restored = rolled.trajectories[1], rolled.trajectories[-1]
    shown, sharpened = list_images(json.loads(restored.messages))
    [index_key, *_] = list_images(json.loads(original.messages))
    stores = ImageStores((run_dir / "images", run_dir / "index" / DIR_NAME))
    worse = degrade(stores.open(index_key), index_key, WORSE)
    assert worse
    assert (shown != index_key, shown) == (True, encode(worse)[0])
    edges, *others = (measure_edges(stores.open(key)) for key in (shown, index_key, sharpened))
    assert min(others) > 1.05 * edges
    [row] = format_rows([restored], "rejection", tmp_path)
    tokenize = open_tokenizer(model, run_dir)
    batch = RowCollator(tokenize.tokenizer.pad_token_id, tokenize.images)(SFT(rows="rejection").tokenize([row], tokenize).rows)
    prompt = restored.turns[-1].reply.prompt_token_ids
    assert tuple(check_pixels(batch, len(prompt), [shown, sharpened], rolled, tokenize.tokenizer)) == prompt


def measure_edges(image: Image.Image) -> float:
    """The mean difference of neighbouring pixels."""
    return float(np.abs(np.diff(np.asarray(image.convert("L"), dtype=float), axis=1)).mean())


def test_a_batch_of_another_prompt_or_of_other_pixels_is_refused(
    rolled: Rolled, model: str, run_dir: Path, tmp_path: Path
) -> None:
    rows = format_steps(rolled, tmp_path)
    other = write_model(
        tmp_path / "other", write_tokenizer(tmp_path / "other"), SHAPES_TINY, max_pixels=128 * 128
    )  # which cuts images otherwise
    with pytest.raises(
        DataError, match=r"row 8 \(\S+\): the prompt of a reply becomes \d+ tokens with 1 images.*Set engine\.model"
    ):
        GRPO().tokenize(rows, open_tokenizer(str(other), run_dir))
    told = json.loads(json.dumps(rows[1]))
    told["prompt"][-1]["content"][0]["text"] += " "
    with pytest.raises(DataError, match=r"row 1 \(\S+\): the prompt of a reply becomes \d+ tokens with 0 images"):
        GRPO().tokenize([told], open_tokenizer(model, run_dir))
    [taught] = format_rows([rolled.trajectories[1]], "rejection", tmp_path)
    with pytest.raises(
        DataError, match=r"row 1 \(\S+\): the prompt of a reply becomes \d+ tokens with 3 images.*--no-finetune\.compare"
    ):
        SFT(rows="rejection").tokenize([taught], open_tokenizer(str(other), run_dir))
    tokenize = open_tokenizer(model, run_dir)
    [step] = GRPO().tokenize(rows[8:9], tokenize).rows
    key = step["image_keys"][-1]
    path = run_dir / "images" / key
    whole = path.read_bytes()
    path.write_bytes((run_dir / "index" / DIR_NAME / step["image_keys"][0]).read_bytes())
    with pytest.raises(DataError, match="damaged: the hash of its bytes"):
        StepCollator(tokenize.tokenizer.pad_token_id, tokenize.images)([step])
    path.write_bytes(whole)
