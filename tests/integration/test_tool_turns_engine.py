"""Rollouts with tools on a real engine: what it was shown and wrote, and what training is shown of it, token for token."""

import asyncio
import json
import shutil
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from engine_process import run_in_process
from small_index import write_index
from transformers import AutoTokenizer

from drag_ray import artifacts, schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.engine.chat_template import check_functions_shown
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.conversation import read_conversation
from drag_ray.engine.embedded import embedded_model_dir
from drag_ray.engine.generate import Generation, Request
from drag_ray.engine.tokens import IGNORED_LABEL, tokenize_conversation
from drag_ray.engine.vllm import VllmEngine
from drag_ray.format.config import FormatConfig
from drag_ray.format.layout import Layout
from drag_ray.format.row_format import load_format
from drag_ray.format.tables import ScoredPart
from drag_ray.process.config import ProcessConfig
from drag_ray.process.trajectories import read_records, select_trajectories
from drag_ray.process.turns import explode_turns, summarise_trajectories
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Page, Question, Trajectory

# As Qwen's templates show functions; the embedded model's own shows none.
TEMPLATE = (
    "{% if tools %}{{ '<|im_start|>system\\n# Tools\\n' }}{% for tool in tools %}{{ tool | tojson + '\\n' }}{% endfor %}"
    "{{ '<|im_end|>\\n' }}{% endif %}"
)
AGENT = AgentConfig(
    protocol="tools", tools=("search", "read_page", "grep"), query_mode="rewrite", max_iterations=6, max_tokens=4, thinking=False
)
PROTOCOL = get_protocol("tools")
REPLIES = (
    PROTOCOL.render_search("fuel"),
    render_call("grep", {"file": "b.pdf", "text": "340"}),
    render_call("read_page", {"file": "b.pdf", "page": 2}),
    PROTOCOL.render_search("rotor speed"),
    PROTOCOL.render_answer("340 rpm", (Evidence("b.pdf", 2),)),
)
QUESTION = Question("q1", "How quickly may it turn?", (Evidence("b.pdf", 2),), ("340 rpm",), split="train")


def roll_out(model: str, index_dir: str, results: Connection) -> None:
    """Roll out on an engine that draws tokens, which stand for the calls that are then read. In a process of its own."""
    tokenizer = AutoTokenizer.from_pretrained(model)

    async def run() -> Trajectory:
        engine = VllmEngine(EngineConfig(model=model, dtype="float32", max_model_len=4096, enforce_eager=True))

        async def replay(request: Request) -> Generation:
            drawn = await engine(request)
            text = REPLIES[sum(message["role"] == "assistant" for message in request.messages)]
            tokens = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
            return replace(drawn, text=text, completion_token_ids=tokens, completion_logprobs=(), finish_reason="stop")

        searcher = Searcher(Path(index_dir))
        environment = SearchEnvironment(searcher, AGENT.top_k, AGENT.depth)
        rollouts = Rollouts(AGENT, Policy(model), replay, environment, "index", pages=searcher)
        return await rollouts.run(RolloutTask(QUESTION, 0, "default", 7))

    results.send(asyncio.run(run()))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The embedded model with a template that shows functions."""
    folder = tmp_path_factory.mktemp("models") / "with_functions"
    shutil.copytree(embedded_model_dir(), folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE + tokenizer.chat_template
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def trajectory(model: str, tmp_path_factory: pytest.TempPathFactory) -> Trajectory:
    check_functions_shown(model, PROTOCOL.list_functions(AGENT.load_tools().functions))
    pages = [
        Page("a.pdf", 1, 1, "rotor blade"),
        Page("b.pdf", 2, 2, "The rotor speed limit is 340 rpm."),
        Page("c.pdf", 1, 1, "fuel"),
    ]
    folder = tmp_path_factory.mktemp("index")
    write_index(folder, pages, [QUESTION])
    return run_in_process(roll_out, model, str(folder / "search_index"))


def test_the_tools_ran_and_the_model_was_told_what_they_found(trajectory: Trajectory) -> None:
    assert trajectory.error == ""
    assert [turn.tool for turn in trajectory.turns] == ["", "grep", "read_page", "", ""]
    assert [turn.tool_error for turn in trajectory.turns] == [""] * 5
    told = [message["content"] for message in json.loads(trajectory.messages) if message["role"] == "tool"]
    assert "b.pdf#2: The rotor speed limit is 340 rpm." in told[1]
    assert told[2] == "b.pdf#2 of 2\nThe rotor speed limit is 340 rpm."


def test_training_is_shown_the_tokens_that_the_engine_was(trajectory: Trajectory, model: str, tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    artifacts.write_parquet(path, schemas.to_table([trajectory], schemas.TRAJECTORIES))
    selected = select_trajectories(read_records([path])).frame
    turns = explode_turns(selected, ProcessConfig())
    part = ScoredPart(turns, summarise_trajectories(selected, turns))
    row_format = load_format("rejection")
    tools = part.trajectories.select("trajectory_id", "tools")
    [row] = Layout(has_tools=True).apply(row_format.build_rows(part, FormatConfig()), row_format.schema, tools).to_pylist()
    tokens = tokenize_conversation(read_conversation(row), tokenizer := AutoTokenizer.from_pretrained(model))
    for turn in trajectory.turns:
        start, drawn = len(turn.prompt_token_ids), turn.completion_token_ids
        assert tuple(tokens["input_ids"][:start]) == turn.prompt_token_ids
        assert tuple(tokens["labels"][start : start + len(drawn)]) == drawn
    num_learned = sum(label != IGNORED_LABEL for label in tokens["labels"])
    assert num_learned == sum(len(turn.completion_token_ids) + 1 for turn in trajectory.turns)  # each with its end of turn
    assert '"name": "read_page"' in tokenizer.decode(trajectory.turns[0].prompt_token_ids)
