"""Pictures put in order with the help of tools on a real engine: what it was shown and wrote, and what training is shown.

Two windows of three candidates; in the first the policy enlarges one and takes another out of the prompt, the second it orders.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from replayed_rollouts import IMAGE_MARK, Rolled, check_pixels, decode_learned, format_rows, open_tokenizer, read_steps, roll_out
from small_index import write_index
from transformers import AutoTokenizer
from vision_engine import VisionEngine

from drag_ray.agent.config import AgentConfig, RerankOptions
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.corpus.image_store import DIR_NAME, ImageStore
from drag_ray.engine.generate import list_images
from drag_ray.finetune.methods.sft import SFT
from drag_ray.finetune.trainers.collator import RowCollator
from drag_ray.types import Evidence, Page, Question

AGENT = AgentConfig(
    task="rerank",
    rerank=RerankOptions(candidates=4, window=3, step=1),
    depth=4,
    top_k=1,
    tools=("zoom", "select_images"),
    page_view="image",
    max_iterations=3,
    max_tokens=4,
    thinking=False,
)
CANDIDATES = tuple(Evidence(f"{name}.pdf", 1) for name in "abcd")
QUESTION = Question("q1", "Which is the last?", (CANDIDATES[3],), split="train", candidates=CANDIDATES)
ZOOMS = render_call("zoom", {"image": "image_3", "x": 500, "y": 500, "factor": 2})
KEEPS = render_call("select_images", {"images": ["image_3", "image_4"]})
REPLIES = (ZOOMS, KEEPS, "<answer>[3, 1, 2]</answer>", "<answer>[2, 1, 3]</answer>")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    store, draw = ImageStore(folder / "index" / DIR_NAME), np.random.default_rng(0)
    pages = []
    for place in CANDIDATES:
        noise = Image.fromarray(draw.integers(0, 256, (30, 40, 3), dtype=np.uint8)).resize((400, 300))
        pages.append(Page(place.file, place.page_number, 1, "", image=store.write(noise)))
    write_index(folder / "index", pages, [QUESTION])
    return folder


@pytest.fixture(scope="module")
def rolled(vision_engine: VisionEngine, run_dir: Path) -> Rolled:
    rolled = roll_out(vision_engine, run_dir, AGENT, QUESTION, (REPLIES,))
    assert rolled.trajectories[0].error == ""
    return rolled


def test_the_list_is_in_the_order_of_its_windows_after_the_tools_have_run(rolled: Rolled) -> None:
    [trajectory] = rolled.trajectories
    assert [turn.call.tool for turn in trajectory.turns] == ["zoom", "select_images", "", ""]
    assert [turn.call.error for turn in trajectory.turns] == [""] * 4
    orders = [[hit.file[0] for hit in turn.ranking.hits] for turn in trajectory.turns if turn.ranking.hits]
    assert orders == [[*"adbc"], [*"dabc"]]  # of b, c, d the last first; then of a, d, b the second
    assert [turn.ranking.evidence_rank for turn in trajectory.turns[2:]] == [2, 1]


def test_the_prompts_hold_the_places_of_the_candidates_that_are_still_looked_at(rolled: Rolled, model: str) -> None:
    mark = AutoTokenizer.from_pretrained(model).convert_tokens_to_ids(IMAGE_MARK)
    [trajectory] = rolled.trajectories
    assert [turn.reply.prompt_token_ids.count(mark) for turn in trajectory.turns] == [3, 4, 2, 5]  # 3 more are the next window
    assert [turn.reply.hidden_images for turn in trajectory.turns] == [(), (), (0, 1), (0, 1)]


def test_training_learns_orders_and_calls_from_the_pixels_that_the_engine_had(
    rolled: Rolled, model: str, run_dir: Path, tmp_path: Path
) -> None:
    [trajectory] = rolled.trajectories
    [row] = format_rows([trajectory], "rejection", tmp_path)
    tokenize = open_tokenizer(model, run_dir)
    tokenizer = tokenize.tokenizer
    batch = RowCollator(tokenizer.pad_token_id, tokenize.images)(SFT(rows="rejection").tokenize([row], tokenize).rows)
    learned = REPLIES[2:]  # the replies before were drawn from prompts with pictures that have left this one
    assert decode_learned(batch["labels"][0], tokenizer) == "".join(f"{reply}<|im_end|>" for reply in learned)
    prompt = trajectory.turns[-1].reply.prompt_token_ids
    shown = [key for place, key in enumerate(list_images(json.loads(trajectory.messages))) if place not in (0, 1)]
    assert tuple(check_pixels(batch, len(prompt), shown, rolled, tokenizer)) == prompt


def test_each_reply_is_a_step_from_the_prompt_of_the_engine(rolled: Rolled, model: str, run_dir: Path, tmp_path: Path) -> None:
    learned, num_images = read_steps(rolled, model, run_dir, tmp_path)
    assert learned == list(REPLIES)
    assert num_images == [3, 4, 2, 5]
