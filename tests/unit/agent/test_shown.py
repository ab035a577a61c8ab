"""Images and texts of a conversation that stand in the prompt, and in the rows of training."""

import json
from pathlib import Path

import polars as pl
import pytest
from factories import build_question, write_trajectories
from PIL import Image
from rollout_cases import roll_out, script
from scripted_engine import ScriptedEngine

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.agent.shown_images import Hidden, leave_out, leave_out_images, list_hidden_images, list_hidden_messages
from drag_ray.corpus.image_store import ImageStore, ImageStores
from drag_ray.engine.generate import Message, list_images
from drag_ray.errors import DataError
from drag_ray.format.config import FormatConfig
from drag_ray.format.layout import SHOWN_COLUMNS, Layout
from drag_ray.format.leaks import RowChecker
from drag_ray.format.row_format import load_format
from drag_ray.format.tables import ScoredPart
from drag_ray.process.config import ProcessConfig
from drag_ray.process.trajectories import read_records, select_trajectories
from drag_ray.process.turns import explode_turns, summarise_trajectories


def say(*parts: str) -> Message:
    """A message in which a part of one letter is an image."""
    told = [{"type": "image", "image": part} if len(part) == 1 else {"type": "text", "text": part} for part in parts]
    return {"role": "user", "content": told}


TALK = [say("Question", "a"), say("Found", "b", "c"), {"role": "user", "content": "nothing"}, say("Cropped", "d"), say("e")]


def test_images_and_texts_of_the_latest_results_and_of_the_opening_stay() -> None:
    assert list_hidden_images(TALK, 1, 0) == ()
    assert list_hidden_images(TALK, 1, 2) == (1, 2)
    assert list_hidden_images(TALK, 1, 1) == (1, 2, 3)
    talk: list[Message] = [{"role": role, "content": "x"} for role in ("system", "user", *("assistant", "user") * 3)]
    assert list_hidden_messages(talk, 2, 0) == ()
    assert list_hidden_messages(talk, 2, 1) == (3, 5)
    assert list_hidden_messages(talk, 2, 2) == (3,)
    assert list_hidden_messages(talk[:4], 2, 2) == ()


def test_dismissed_images_go_one_by_one() -> None:
    hidden = list_hidden_images(TALK, 1, 0, {2, 4})
    assert hidden == (2, 4)
    shown = leave_out_images(TALK, hidden)
    assert list_images(shown) == ["a", "b", "d"]
    assert shown[1] == say("Found", "b")
    assert shown[4] == {"role": "user", "content": []}


def test_the_images_of_a_question_open_the_conversation_by_their_names(environment: SearchEnvironment, tmp_path) -> None:
    key = ImageStore(tmp_path).write(Image.new("RGB", (40, 40), "red"))
    question = build_question(question="What is this?", images=(key, key))
    engine = ScriptedEngine(script("<search>rotor</search>", "<answer>red</answer>"))
    trajectory = roll_out(engine, environment, question, max_iterations=2, image_searches=1)
    assert trajectory.error == ""
    asked = json.loads(trajectory.messages)[1]
    assert [part.get("text", part.get("image")) for part in asked["content"]] == [
        *("image_1:\n", key, "\n\nimage_2:\n", key, "\n\nQuestion: What is this?"),
    ]
    assert list_images(engine.requests[1].messages) == [key, key]
    config = AgentConfig(query_mode="rewrite", max_iterations=2, image_searches=1)
    assert Prompts(config).question_of(engine.requests[1].messages) == "What is this?"
    hinted = Prompts(config).preceded_by_hint(engine.requests[0].messages, "A hint.")
    assert hinted[1]["content"][0]["text"] == "A hint.\n\nimage_1:\n"


def test_what_tools_show_is_named_stored_and_leaves_the_prompt_when_dismissed(environment: SearchEnvironment, tmp_path) -> None:
    key = ImageStore(tmp_path / "questions").write(Image.new("RGB", (400, 200), "red"))
    tools = {"protocol": "tools", "max_iterations": 5, "tools": ("search", "crop", "rotate", "select_images")}
    replies = (
        render_call("crop", {"image": "image_1", "box": [0, 0, 500, 1000]}),
        render_call("rotate", {"image": "image_2", "degrees": 90}),
        render_call("select_images", {"images": ["image_3"]}),
        render_call("provide_answer", {"answer": "red"}),
    )
    engine, stores = ScriptedEngine(script(*replies)), ImageStores((tmp_path / "run", tmp_path / "questions"))
    trajectory = roll_out(engine, environment, build_question(images=(key,)), images=stores, **tools)
    assert (trajectory.error, [turn.call.error for turn in trajectory.turns]) == ("", [""] * 4)
    assert [turn.reply.hidden_images for turn in trajectory.turns] == [(), (), (), (1,)]
    shown = [list_images(request.messages) for request in engine.requests]
    asked, cropped, turned = shown[2]
    assert shown == [[asked], [asked, cropped], [asked, cropped, turned], [asked, turned]]
    assert (stores.open(cropped).size, stores.open(turned).size) == ((200, 200), (200, 200))
    assert json.loads(trajectory.messages)[3]["content"][0]["text"] == (
        "200 x 200 pixels.\n\nimage_2: crop of image_1 at 0,0,500,1000\n"
    )


NOTE = "[older result: its text is left out]"
REPLIES = ("<search>rotor</search>", "<search>speed</search>", "<search>rotor speed</search>", "<answer>340 rpm</answer>")


def shorten(content: object) -> object:
    [message] = leave_out([{"role": "user", "content": content}], Hidden(messages=(0,)))
    return message["content"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Pages found:\n\n[1] a.pdf#3\nlong text\n\n[2] b c.pdf#12, image_4\n[7] Smith, 1990, and more",
            "[1] a.pdf#3\n[2] b c.pdf#12, image_4",
        ),
        ("3 lines with 'rpm' in a.pdf\n" + 90 * "x", "3 lines with 'rpm' in a.pdf"),
        (300 * "x", 200 * "x"),
    ],
)
def test_of_an_old_text_the_names_of_pages_stay_or_the_first_line(text: str, expected: str) -> None:
    assert shorten(text) == f"{expected}\n{NOTE}"


def test_what_is_short_stays_and_so_do_images() -> None:
    assert shorten("No page matches these words.") == "No page matches these words."
    image = {"type": "image", "image": "ab/1.jpg"}
    told = [{"type": "text", "text": 90 * "x\n"}, image, {"type": "text", "text": "end"}]
    assert shorten(told) == [{"type": "text", "text": f"x\n{NOTE}"}, image, {"type": "text", "text": "end"}]


@pytest.mark.parametrize("kind", ["rl_steps", "rejection"])
def test_rows_show_what_the_model_was_shown_at_each_turn(environment: SearchEnvironment, tmp_path: Path, kind: str) -> None:
    engine = ScriptedEngine(script(*REPLIES))
    trajectory = roll_out(engine, environment, max_iterations=4, text_searches=1)
    assert [turn.reply.hidden_messages for turn in trajectory.turns] == [(), (), (3,), (3, 5)]
    asked = [list(request.messages) for request in engine.requests]
    assert asked[2][3]["content"] == f"[1] a.pdf#1\n[2] b.pdf#2\n{NOTE}"
    assert "340 rpm in flight" in json.loads(trajectory.messages)[3]["content"]  # which stays on record

    write_trajectories(tmp_path / "part.parquet", [trajectory])
    selected = select_trajectories(read_records([tmp_path / "part.parquet"])).frame
    turns = explode_turns(selected, ProcessConfig())
    part, row_format = ScoredPart(turns, summarise_trajectories(selected, turns)), load_format(kind)
    shown, layout = part.trajectories.select("trajectory_id", *SHOWN_COLUMNS), Layout(hides_text=True)
    table = layout.apply(row_format.build_rows(part, FormatConfig()), row_format.schema, shown)
    rows = table.to_pylist()
    if kind == "rl_steps":
        assert [row["prompt"] for row in rows] == asked
    else:
        [row] = rows
        is_trained = [row["messages"][: len(prompt)] == prompt for prompt in asked[: len(row["train_turns"])]]
        assert row["train_turns"] == is_trained  # the others were written with other prompts
        assert is_trained == [True, False, False, True]
    sides = pl.DataFrame({"question_id": ["q1"], "side": ["train"]})
    RowChecker(part, sides, layout).check(pl.DataFrame(table), "train", "train.parquet")
    with pytest.raises(DataError, match="not what the policy was shown"):
        RowChecker(part, sides, Layout()).check(pl.DataFrame(table), "train", "train.parquet")
