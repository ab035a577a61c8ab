"""Rollouts of the task rerank, against a scripted engine and a real index: their windows, and the order of each."""

import asyncio
import json
from pathlib import Path

import pytest
from factories import build_question
from PIL import Image
from rollout_cases import roll_out, script
from scripted_engine import ScriptedEngine
from small_index import open_index

from drag_ray.agent.config import AgentConfig, PromptSet
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.shown_images import list_parts
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.collect.config import CollectSections
from drag_ray.config import load
from drag_ray.corpus.image_store import DIR_NAME, ImageStore, ImageStores
from drag_ray.engine.generate import list_images
from drag_ray.errors import ConfigError
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.recipes.v_retrver.task import apply_order, describe_modalities, plan_windows
from drag_ray.types import CAPTION, ActionKind, Evidence, Page, Question, StopReason, Trajectory

CANDIDATES = (Evidence("a.pdf", 1), Evidence("c.pdf", 1), Evidence("b.pdf", 2))
QUESTION = build_question(question="rotor", evidence=(Evidence("b.pdf", 2),), candidates=CANDIDATES)
KEY = "3f/" + "3f" * 16 + ".jpg"
PAIRS = {"candidates": 3, "window": 2, "step": 1}
TASK = {"task": "rerank", "query_mode": "expand", "max_iterations": 1, "top_k": 1}


def order(engine: ScriptedEngine, environment: SearchEnvironment, question: Question = QUESTION, /, **rerank: int) -> Trajectory:
    return roll_out(engine, environment, question, **TASK, rerank={"candidates": 10, **rerank})


def list_files(trajectory: Trajectory) -> list[str]:
    return ["".join(hit.file[0] for hit in turn.ranking.hits) for turn in trajectory.turns]


def test_a_list_is_one_rollout_and_its_windows_are_turns(environment: SearchEnvironment) -> None:
    engine = ScriptedEngine(script("<think>2 has a speed</think><answer>[2, 1]</answer>", "<answer>[2]</answer>"))
    trajectory = order(engine, environment, **PAIRS)
    assert list_files(trajectory) == ["abc", "bac"]
    assert [turn.ranking.evidence_rank for turn in trajectory.turns] == [2, 1]
    assert [turn.query for turn in trajectory.turns] == ["[2, 1]", "[2]"]
    assert (trajectory.question_search.rank, trajectory.task, trajectory.protocol) == (3, "rerank", "ranking")
    assert (trajectory.stop_reason, trajectory.error, trajectory.question_search.mode) == (StopReason.ANSWER, "", "rewrite")
    assert [hit.rank for hit in trajectory.turns[-1].ranking.hits] == [1, 2, 3]


def test_the_policy_sees_a_window_with_numbers_and_no_names(environment: SearchEnvironment) -> None:
    engine = ScriptedEngine(script("<answer>[2, 1]</answer>", "<answer>[1, 2]</answer>"))
    trajectory = order(engine, environment, **PAIRS)
    shown = [request.messages[-1]["content"] for request in engine.requests]
    speed = "rotor speed limit is 340 rpm in flight on the whole"
    assert shown == [
        f"Query: rotor\n\nCandidates:\n\n(1) fuel\n\n(2) {speed}",
        f"Query: rotor\n\nCandidates:\n\n(1) rotor rotor rotor blade\n\n(2) {speed}",
    ]
    assert ".pdf" not in trajectory.messages
    assert json.loads(trajectory.messages)[-1]["role"] == "assistant"
    assert "<answer>[3, 1, 2]</answer>" in engine.requests[0].messages[0]["content"]


def test_a_picture_is_shown_with_its_caption_and_without_what_was_read_off_it(tmp_path: Path) -> None:
    pages = [
        Page("a.png", 1, 1, "it is red", CAPTION, KEY),
        Page("b.png", 1, 1, "read off it", "ocr", KEY),
        Page("c", 1, 1, "a text", "text"),
    ]
    question = build_question(
        question="", images=(KEY,), evidence=(Evidence("c", 1),), candidates=tuple(Evidence(page.file, 1) for page in pages)
    )
    engine = ScriptedEngine(script("<answer>[3]</answer>"))
    environment = SearchEnvironment(open_index(tmp_path, pages), top_k=1, depth=10)
    trajectory = roll_out(engine, environment, question, **TASK, rerank={"candidates": 10}, page_view="image")
    image = {"type": "image", "image": KEY}
    texts = ["Query: ", "\n\nCandidates:\n\n(1) ", "it is red\n\n(2) ", "\n\n(3) a text"]
    first, *rest = [{"type": "text", "text": text} for text in texts]
    assert trajectory.error == ""
    assert engine.requests[0].messages[-1]["content"] == [first, *(part for text in rest for part in (image, text))]


def test_a_reply_that_cannot_be_read_leaves_the_order_and_the_next_window_follows(environment: SearchEnvironment) -> None:
    engine = ScriptedEngine(script("the second", "<answer>[2, 1]</answer>"))
    trajectory = order(engine, environment, **PAIRS)
    assert [turn.action for turn in trajectory.turns] == [ActionKind.INVALID, ActionKind.SEARCH]
    assert list_files(trajectory) == ["", "cab"]
    told = engine.requests[1].messages[-1]["content"]
    assert told.startswith("That reply could not be read: no <answer> in the reply.")
    assert "(2) fuel" in told


def test_another_opening_shows_the_first_window_as_it_was_asked_about(environment: SearchEnvironment) -> None:
    config = AgentConfig(task="rerank", top_k=1, rerank=PAIRS)  # type: ignore[arg-type]
    engine = ScriptedEngine(script("<answer>[2, 1]</answer>", "<answer>[2, 1]</answer>"))
    sets = (PromptSet(instructions="Be quick."),)
    rollouts = Rollouts(config, Policy("model"), engine, environment, "index", prompt_sets=sets)
    trajectory = asyncio.run(rollouts.run(RolloutTask(QUESTION, 0, "greedy", 7, prompt_set=1)))
    first, second = (request.messages for request in engine.requests)
    assert "Be quick." in first[0]["content"]
    assert second[:2] == first
    assert second[1:] == tuple(json.loads(trajectory.messages)[1:-1])


KEEP, ZOOM = render_call("select_images", {"images": ["image_3"]}), render_call("zoom", {"image": "image_3"})
LOST = render_call("zoom", {"image": "image_9"})


def look_closer(folder: Path, *replies: str) -> tuple[Trajectory, list[list[str]], list[str]]:
    """A rollout over three pages with pictures, in windows that take two calls each; the images and last texts of its prompts."""
    store = ImageStore(folder / DIR_NAME)
    ramp = Image.linear_gradient("L")
    pages = [Page(name, 1, 1, "", "ocr", store.write(ramp.rotate(90 * turn))) for turn, name in enumerate("abc")]
    candidates = tuple(Evidence(page.file, 1) for page in pages)
    question = build_question(question="sea", images=(pages[2].image,), evidence=(Evidence("c", 1),), candidates=candidates)
    options = {**TASK, "max_iterations": 3, "rerank": PAIRS, "page_view": "image", "tools": ("select_images", "zoom")}
    engine = ScriptedEngine(script(*replies))
    environment = SearchEnvironment(open_index(folder, pages), top_k=1, depth=10)
    images = ImageStores((folder / "new", folder / DIR_NAME))
    trajectory = roll_out(engine, environment, question, images=images, **options)
    assert trajectory.error == ""
    names = {page.image: page.file for page in pages}
    shown = [[names.get(key, "new") for key in list_images(request.messages)] for request in engine.requests]
    last = [list_parts(request.messages[-1]["content"]) for request in engine.requests]
    return trajectory, shown, [[part["text"] for part in parts if part["type"] == "text"][-1] for parts in last]


def test_a_policy_with_tools_looks_closer_before_it_orders(tmp_path: Path) -> None:
    trajectory, shown, _ = look_closer(tmp_path, ZOOM, KEEP, "<answer>[2, 1]</answer>", "<answer>[2, 1]</answer>")
    assert [turn.action.value for turn in trajectory.turns] == ["tool", "tool", "search", "search"]
    assert [turn.call.error for turn in trajectory.turns] == [""] * 4
    assert shown == [["c", "b", "c"], ["c", "b", "c", "new"], ["c", "c"], ["c", "c", "c", "a", "c"]]
    assert [turn.reply.hidden_images for turn in trajectory.turns] == [(), (), (1, 3), (1, 3)]
    assert [turn.ranking.evidence_rank for turn in trajectory.turns] == [None, None, 2, 1]
    assert (trajectory.stop_reason, describe_modalities(trajectory)) == (StopReason.ANSWER, "mixed to image")
    opening = json.loads(trajectory.messages)[1]["content"]
    texts = ["Query: image_1\n", "sea\n\nCandidates:\n\n(1) image_2\n", "\n\n(2) image_3\n"]
    assert [part["text"] for part in opening if part["type"] == "text"] == texts
    assert [function["function"]["name"] for function in json.loads(trajectory.tools)] == ["select_images", "zoom"]


def test_a_window_ends_with_its_replies_and_the_last_is_asked_for_the_order(tmp_path: Path) -> None:
    trajectory, _, told = look_closer(tmp_path, LOST, KEEP, ZOOM, "<answer>[2, 1]</answer>")
    assert [bool(turn.call.error) for turn in trajectory.turns] == [True, False, False, False]
    assert [text.endswith("inside <answer></answer>.") for text in told] == [False, False, True, False]
    assert told[3] == "\n\n(2) image_7\n"
    assert [turn.ranking.evidence_rank for turn in trajectory.turns] == [None, None, None, 3]
    assert trajectory.stop_reason is StopReason.ANSWER


def test_candidates_are_one_window_in_one_go_and_those_beyond_the_first_stay_behind(environment: SearchEnvironment) -> None:
    trajectory = order(ScriptedEngine(script("<answer>[3, 3, 9, 0, 2]</answer>")), environment)
    assert list_files(trajectory) == ["bca"]
    trajectory = order(ScriptedEngine(script("<answer>[2, 1]</answer>")), environment, candidates=2)
    assert list_files(trajectory) == ["cab"]


def test_without_candidates_what_the_index_finds_is_ordered_and_nothing_ends_too(
    environment: SearchEnvironment,
) -> None:
    question = build_question(question="rotor", evidence=(Evidence("b.pdf", 2),))
    trajectory = order(ScriptedEngine(script("<answer>[2, 1]</answer>")), environment, question)
    assert [hit.file for hit in trajectory.question_search.hits] == ["a.pdf", "b.pdf"]
    assert (trajectory.question_search.rank, list_files(trajectory)) == (2, ["ba"])
    question = build_question(question="zebra", evidence=(Evidence("b.pdf", 2),))
    trajectory = order(ScriptedEngine(script("<answer>[1]</answer>")), environment, question)
    assert (list_files(trajectory), trajectory.error) == ([""], "")


def test_a_candidate_that_the_index_lacks_is_an_error_of_the_rollout(environment: SearchEnvironment) -> None:
    question = build_question(candidates=(Evidence("nowhere.pdf", 1), Evidence("a.pdf", 1)))
    trajectory = order(ScriptedEngine(script()), environment, question)
    assert trajectory.stop_reason is StopReason.ERROR
    assert "nowhere.pdf" in trajectory.error


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--agent.depth", "20"], r"depth 20 is below rerank\.candidates 50"),
        (["--agent.depth", "50", "--agent.rerank.step", "20"], r"step is 20, which must be less than window"),
        (["--agent.depth", "50", "--agent.tools", '["search", "zoom"]', "--agent.max-iterations", "2"], "does not search; leave"),
        (["--agent.depth", "50", "--agent.tools", '["zoom"]'], "no reply could use the result of a tool"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_runs(options: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(RunConfig, ["--agent.task", "rerank", *options])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--collect.proposals", "rm3"], r"collect\.proposals: help with searches"),
        (["--collect.hinted-samples", "1"], r"collect\.hinted_samples"),
        (["--collect.exclude-ids", "nowhere"], r"collect\.exclude_ids 'nowhere': no such file or folder"),
    ],
)
def test_what_helps_with_searches_is_refused_where_there_are_none(options: list[str], problem: str) -> None:
    config = load(RunConfig, ["--agent.task", "rerank", "--agent.depth", "50", *options])
    with pytest.raises(ConfigError, match=problem):
        config.take(CollectSections).check()


@pytest.mark.parametrize(
    ("num_candidates", "size", "step", "windows"),
    [
        (50, 20, 10, [(30, 50), (20, 40), (10, 30), (0, 20)]),  # V-Retrver's
        (45, 20, 10, [(25, 45), (15, 35), (5, 25), (0, 20)]),
        (21, 20, 10, [(1, 21), (0, 20)]),
        (20, 20, 10, [(0, 20)]),
        (7, 20, 10, [(0, 7)]),
        (20, 20, 20, [(0, 20)]),
        (5, 2, 1, [(3, 5), (2, 4), (1, 3), (0, 2)]),
        (1, 20, 10, []),
        (0, 20, 10, []),
    ],
)
def test_windows_reach_the_front_from_any_length(
    num_candidates: int, size: int, step: int, windows: list[tuple[int, int]]
) -> None:
    assert plan_windows(num_candidates, size, step) == windows


def test_the_last_candidate_climbs_to_the_front_through_all_windows() -> None:
    candidates = list(range(50))
    for window in plan_windows(50, 20, 10):
        place = candidates.index(49) - window[0] + 1
        candidates = apply_order(candidates, window, [place])
    assert candidates == [49, *range(49)]


@pytest.mark.parametrize(
    ("order", "result"),
    [
        ([3, 1, 2], "xcabz"),
        ([2], "xbacz"),
        ([2, 2, 3, 2], "xbcaz"),
        ([0, -1, 4, 99, 3], "xcabz"),
        ([], "xabcz"),
    ],
)
def test_unknown_and_repeated_numbers_do_not_count_and_the_unnamed_keep_their_order(order: list[int], result: str) -> None:
    assert apply_order("xabcz", (1, 4), order) == list(result)
