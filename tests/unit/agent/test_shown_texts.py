"""Old texts leave the prompt by a rule, the turn says which, and training rows show what each prompt was."""

import json
from pathlib import Path

import polars as pl
import pytest
from rollout_cases import roll_out, script

from drag_ray import schemas
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.shown_images import Hidden, leave_out, list_hidden_messages
from drag_ray.engine.generate import Message
from drag_ray.engine.scripted import ScriptedEngine
from drag_ray.errors import DataError
from drag_ray.format.config import FormatConfig
from drag_ray.format.layout import SHOWN_COLUMNS, Layout
from drag_ray.format.leaks import RowChecker
from drag_ray.format.row_format import load_format
from drag_ray.format.tables import ScoredPart
from drag_ray.process.config import ProcessConfig
from drag_ray.process.trajectories import read_records, select_trajectories
from drag_ray.process.turns import explode_turns, summarise_trajectories
from drag_ray.storage import artifacts

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


def test_the_latest_results_stay_whole_and_so_does_the_opening() -> None:
    talk: list[Message] = [{"role": role, "content": "x"} for role in ("system", "user", *("assistant", "user") * 3)]
    assert list_hidden_messages(talk, 2, 0) == ()
    assert list_hidden_messages(talk, 2, 1) == (3, 5)
    assert list_hidden_messages(talk, 2, 2) == (3,)
    assert list_hidden_messages(talk[:4], 2, 2) == ()


@pytest.mark.parametrize("kind", ["rl_steps", "rejection"])
def test_rows_show_what_the_model_was_shown_at_each_turn(environment: SearchEnvironment, tmp_path: Path, kind: str) -> None:
    engine = ScriptedEngine(script(*REPLIES))
    trajectory = roll_out(engine, environment, max_iterations=4, text_searches=1)
    assert [turn.hidden_messages for turn in trajectory.turns] == [(), (), (3,), (3, 5)]
    asked = [list(request.messages) for request in engine.requests]
    assert asked[2][3]["content"] == f"[1] a.pdf#1\n[2] b.pdf#2\n{NOTE}"
    assert "340 rpm in flight" in json.loads(trajectory.messages)[3]["content"]  # which stays on record

    artifacts.write_parquet(tmp_path / "part.parquet", schemas.to_table([trajectory], schemas.TRAJECTORIES))
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
