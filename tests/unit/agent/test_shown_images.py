"""Which images of a conversation are in the prompt."""

import json

from factories import build_question
from PIL import Image
from rollout_cases import script

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.shown_images import leave_out_images, list_hidden_images
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.corpus.image_store import ImageStore, ImageStores
from drag_ray.engine.generate import Message, list_images
from drag_ray.engine.scripted import ScriptedEngine
from drag_ray.search.searcher import Searcher


def say(*parts: str) -> Message:
    """A message in which a part of one letter is an image."""
    told = [{"type": "image", "image": part} if len(part) == 1 else {"type": "text", "text": part} for part in parts]
    return {"role": "user", "content": told}


TALK = [say("Question", "a"), say("Found", "b", "c"), {"role": "user", "content": "nothing"}, say("Cropped", "d"), say("e")]


def test_all_images_stay_unless_only_the_latest_do_and_those_of_the_opening_always() -> None:
    assert list_hidden_images(TALK, 1, 0) == ()
    assert list_hidden_images(TALK, 1, 2) == (1, 2)
    assert list_hidden_images(TALK, 1, 1) == (1, 2, 3)


def test_dismissed_images_go_one_by_one() -> None:
    hidden = list_hidden_images(TALK, 1, 0, {2, 4})
    assert hidden == (2, 4)
    shown = leave_out_images(TALK, hidden)
    assert list_images(shown) == ["a", "b", "d"]
    assert shown[1] == say("Found", "b")
    assert shown[4] == {"role": "user", "content": []}


async def test_the_images_of_a_question_open_the_conversation_by_their_names(environment: SearchEnvironment, tmp_path) -> None:
    key = ImageStore(tmp_path).write(Image.new("RGB", (40, 40), "red"))
    question = build_question(question="What is this?", images=(key, key))
    config = AgentConfig(query_mode="rewrite", max_iterations=2, image_searches=1)
    engine = ScriptedEngine(script("<search>rotor</search>", "<answer>red</answer>"))
    trajectory = await Rollouts(config, Policy("model"), engine, environment, "index").run(RolloutTask(question, 0, "default", 7))
    assert trajectory.error == ""
    asked = json.loads(trajectory.messages)[1]
    assert [part.get("text", part.get("image")) for part in asked["content"]] == [
        *("image_1:\n", key, "\n\nimage_2:\n", key, "\n\nQuestion: What is this?"),
    ]
    assert list_images(engine.requests[1].messages) == [key, key]
    assert Prompts(config).question_of(engine.requests[1].messages) == "What is this?"
    hinted = Prompts(config).preceded_by_hint(engine.requests[0].messages, "A hint.")
    assert hinted[1]["content"][0]["text"] == "A hint.\n\nimage_1:\n"


async def test_what_tools_show_is_named_stored_and_leaves_the_prompt_when_it_is_dismissed(
    environment: SearchEnvironment, tmp_path
) -> None:
    key = ImageStore(tmp_path / "questions").write(Image.new("RGB", (400, 200), "red"))
    config = AgentConfig(
        protocol="tools", query_mode="rewrite", max_iterations=5, tools=("search", "crop", "rotate", "select_images")
    )
    replies = (
        render_call("crop", {"image": "image_1", "box": [0, 0, 500, 1000]}),
        render_call("rotate", {"image": "image_2", "degrees": 90}),
        render_call("select_images", {"images": ["image_3"]}),
        render_call("provide_answer", {"answer": "red"}),
    )
    engine, index = ScriptedEngine(script(*replies)), environment._index
    assert isinstance(index, Searcher)
    stores = ImageStores((tmp_path / "run", tmp_path / "questions"))
    rollouts = Rollouts(config, Policy("model"), engine, environment, "index", pages=index, images=stores)
    trajectory = await rollouts.run(RolloutTask(build_question(images=(key,)), 0, "default", 7))
    assert (trajectory.error, [turn.tool_error for turn in trajectory.turns]) == ("", [""] * 4)
    assert [turn.hidden_images for turn in trajectory.turns] == [(), (), (), (1,)]
    shown = [list_images(request.messages) for request in engine.requests]
    asked, cropped, turned = shown[2]
    assert shown == [[asked], [asked, cropped], [asked, cropped, turned], [asked, turned]]
    assert (stores.open(cropped).size, stores.open(turned).size) == ((200, 200), (200, 200))
    assert json.loads(trajectory.messages)[3]["content"][0]["text"] == (
        "200 x 200 pixels.\n\nimage_2: crop of image_1 at 0,0,500,1000\n"
    )
