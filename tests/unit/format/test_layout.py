import json
from dataclasses import replace

import polars as pl
import pytest
from factories import build_answer, build_search, build_trajectory, build_turn, change

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.shown_images import leave_out_images, list_hidden_images
from drag_ray.engine.conversation import read_conversation
from drag_ray.errors import DataError
from drag_ray.format.config import FormatConfig
from drag_ray.format.layout import SHOWN_COLUMNS, Layout
from drag_ray.format.leaks import RowChecker
from drag_ray.format.rows import dpo, rejection, rl_steps, sft_query, sft_trajectory
from drag_ray.types import Trajectory

SIDES = pl.DataFrame({"question_id": ["q1"], "side": ["train"]})


def show_images(*turns, image_searches: int = 0, **fields) -> Trajectory:
    """A trajectory whose results are page images, one a search, of which the latest are in the prompt."""
    messages = json.loads(build_trajectory(*turns).messages)
    for place, message in enumerate(messages):
        if message["content"].startswith("Results of"):
            message["content"] = [{"type": "text", "text": "Page "}, {"type": "image", "image": f"{place}.png"}]
    trajectory = build_trajectory(*turns, messages=json.dumps(messages), **fields)
    hidden = [list_hidden_images(messages[: turn.num_prompt_messages], 2, image_searches) for turn in trajectory.turns]
    turns = tuple(change(turn, hidden_images=places) for turn, places in zip(trajectory.turns, hidden, strict=True))
    return replace(trajectory, turns=turns)


def lay_out(part, module, layout: Layout) -> list[dict]:
    rows = module.FORMAT.build_rows(part, FormatConfig())
    shown = part.trajectories.select("trajectory_id", *SHOWN_COLUMNS)
    return layout.apply(rows, module.FORMAT.schema, shown).to_pylist()


def text(content: str) -> list[dict]:
    return [{"type": "text", "text": content}]


IMAGE = {"type": "image", "text": None}


def test_rows_name_their_functions_and_one_without_a_turn_to_teach_is_left_out(process) -> None:
    shown = json.dumps(get_protocol("tools").list_functions())
    part = process(build_trajectory(build_search("a", 1), protocol="tools", tools=shown))
    (row,) = lay_out(part, sft_query, Layout(has_tools=True))
    assert row["tools"] == shown
    assert row["completion"][0]["content"] == get_protocol("tools").render_search("a")
    turns = [build_search("a", error="no index"), build_search("b", 1), build_turn()]
    (row,) = lay_out(process(show_images(*turns)), rejection, Layout(has_images=True))
    assert row["train_turns"] == [False, True, False]
    assert lay_out(process(show_images(*turns, image_searches=1)), rejection, Layout(has_images=True)) == []


def test_prompts_refer_to_the_images_that_the_policy_saw_in_their_places(process) -> None:
    part = process(
        show_images(build_search("a"), build_search("b", 1)), show_images(build_search("a"), build_search("c"), sample_index=1)
    )
    assert part.trajectories["has_images"].to_list() == [True, True]
    (row,) = lay_out(part, dpo, Layout(has_images=True))
    assert row["images"] == ["3.png"]
    assert row["prompt"][0]["content"][0]["type"] == "text"
    assert row["prompt"][3]["content"] == [*text("Page "), IMAGE]
    assert row["chosen"] == [{"role": "assistant", "content": text("<search>b</search>")}]


def test_images_that_had_left_the_prompt_are_not_shown_and_turns_that_saw_them_not_taught(process) -> None:
    turns = [build_search("a", 3), build_search("b", 2), build_search("c", 1), build_answer()]
    (row,) = lay_out(process(show_images(*turns)), sft_trajectory, Layout(has_images=True))
    assert (row["images"], row["train_turns"]) == (["3.png", "5.png"], [True, True, True])
    (row,) = lay_out(process(show_images(*turns, image_searches=1)), sft_trajectory, Layout(has_images=True))
    assert row["messages"][3]["content"] == text("Page ")
    # The second query was written with the first image in sight, which the third was written without.
    assert (row["images"], row["train_turns"]) == (["5.png"], [True, False, True])


@pytest.mark.parametrize("image_searches", [0, 1])
def test_training_reads_the_conversation_that_the_policy_was_asked_with(process, image_searches: int) -> None:
    turns = [build_search("a"), build_search("b"), build_search("c", 1)]
    trajectory = show_images(*turns, image_searches=image_searches)
    (row,) = lay_out(process(trajectory), sft_trajectory, Layout(has_images=True))
    asked = leave_out_images(json.loads(trajectory.messages)[:-1], trajectory.turns[-1].reply.hidden_images)
    assert read_conversation(row).messages[: len(asked)] == asked


@pytest.mark.parametrize("image_searches", [0, 1])
@pytest.mark.parametrize("module", [sft_trajectory, rl_steps])
def test_the_check_of_written_rows_knows_their_images(process, module, image_searches: int) -> None:
    turns = [build_search("a", 3), build_search("b", 2), build_search("c", 1)]
    part, layout = process(show_images(*turns, image_searches=image_searches)), Layout(has_images=True)
    rows, checker = pl.DataFrame(lay_out(part, module, layout)), RowChecker(part, SIDES, layout)
    checker.check(rows, "train", "train.parquet")
    swapped = rows.with_columns(images=pl.col("images").list.eval(pl.lit("evidence.png")))
    with pytest.raises(DataError, match="not what the policy was shown"):
        checker.check(swapped, "train", "train.parquet")
