"""Rollouts of fifty turns: what a turn takes does not grow with the turns before it."""

import asyncio
import time
import zlib
from pathlib import Path
from statistics import median

import pytest
from factories import change
from rollout_cases import QUESTION

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchEnvironment, SearchResult
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.rollout import Rollouts, share_tokens
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.engine.generate import Generation, Request
from drag_ray.rollout import journal
from drag_ray.types import Hit, Page, Trajectory

PROTOCOL = get_protocol("tools")


def tokenize(text: str) -> list[int]:
    """Numbers of a vocabulary, made anew as a tokenizer makes them; a text has the same ones each time."""
    return [zlib.crc32(text[start : start + 4].encode()) % 150_000 for start in range(0, len(text), 4)]


class Engine:
    """Searches for something else each time, whatever it is asked. Notes the time of the process between its replies."""

    def __init__(self) -> None:
        self.between_s: list[float] = []
        self._replied = time.process_time()

    async def __call__(self, request: Request) -> Generation:
        self.between_s.append(time.process_time() - self._replied)
        ids = [token for message in request.messages for token in tokenize(str(message["content"]))]
        search = PROTOCOL.render_search(f"rotor {len(self.between_s)}")
        generation = Generation(search, tuple(ids), tuple(tokenize(search)), "stop")
        self._replied = time.process_time()
        return generation


@pytest.fixture
def new_pages(environment: SearchEnvironment, monkeypatch: pytest.MonkeyPatch) -> SearchEnvironment:
    """Finds another page of 3,000 characters, of which 2,000 are shown with each search."""
    num_searches = 0

    async def search(*_: object) -> SearchResult:
        nonlocal num_searches
        num_searches += 1
        text = " ".join(f"{zlib.crc32(f'{num_searches} {place}'.encode()):x}" for place in range(333))
        page = Page(f"{num_searches}.pdf", 1, 1, text)
        return SearchResult(shown=((Hit(page.file, 1, 1, 1.0), page),))

    monkeypatch.setattr(environment, "search", search)
    return environment


def roll_out(environment: SearchEnvironment, num_turns: int, text_searches: int = 0) -> tuple[Trajectory, Engine]:
    engine = Engine()
    config = AgentConfig(protocol="tools", query_mode="rewrite", max_iterations=num_turns, text_searches=text_searches)
    rollouts = Rollouts(config, Policy("model"), engine, environment, "index")
    trajectory = asyncio.run(rollouts.run(RolloutTask(QUESTION, 0, "default", 7)))
    assert (trajectory.error, len(trajectory.turns)) == ("", num_turns)
    return trajectory, engine


@pytest.mark.seconds
def test_what_prompts_have_in_common_is_in_memory_once_and_turns_take_no_longer(new_pages: SearchEnvironment) -> None:
    trajectory, _ = roll_out(new_pages, 50)
    last = trajectory.turns[-1].reply.prompt_token_ids
    assert len(last) > 20_000
    num_objects = len({id(token) for turn in trajectory.turns for token in turn.reply.prompt_token_ids})
    # What a turn adds to the prompt is made twice: it comes first as a reply, and then within a prompt.
    assert num_objects < 1.2 * len(last)
    _, engine = roll_out(new_pages, 50)
    early, late = median(engine.between_s[5:15]), median(engine.between_s[-10:])
    assert late < 5 * early + 0.005


def test_where_old_texts_leave_the_prompt_what_is_asked_grows_with_the_turns_alone(
    new_pages: SearchEnvironment,
) -> None:
    num_asked, num_objects = {}, {}
    for num_turns in (25, 50):
        trajectory, _ = roll_out(new_pages, num_turns, text_searches=3)
        lengths = [len(turn.reply.prompt_token_ids) for turn in trajectory.turns]
        assert lengths[-1] < 2 * lengths[4]
        num_asked[num_turns] = sum(lengths)
        num_objects[num_turns] = len({id(token) for turn in trajectory.turns for token in turn.reply.prompt_token_ids})
    assert num_asked[50] < 3 * num_asked[25]  # 3.9 times as many without; the names of the pages stay
    assert num_objects[50] < 2.2 * num_objects[25]


@pytest.mark.seconds
def test_files_grow_with_turns_and_not_with_their_square(new_pages: SearchEnvironment, tmp_path: Path) -> None:
    num_bytes: dict[int, int] = {}
    for num_turns in (25, 50):
        trajectory, _ = roll_out(new_pages, num_turns)
        folder = tmp_path / str(num_turns)
        folder.mkdir()
        journal._write(folder, schemas.to_table([trajectory], schemas.TRAJECTORIES), "0" * 8)
        [path] = folder.iterdir()
        num_bytes[num_turns] = path.stat().st_size
        [row] = schemas.read_table(path, schemas.TRAJECTORIES).to_pylist()
        kept = [turn.reply.prompt_token_ids for turn in schemas.to_trajectory(row).turns]
        assert kept == [turn.reply.prompt_token_ids for turn in trajectory.turns]
    assert num_bytes[50] < 2.1 * num_bytes[25]


@pytest.mark.parametrize(
    "prompt", [(1, 2, 3, 4, 5, 6), (1, 2, 3, 4), (1, 2, 9, 4), (1, 2), (7, 8, 9), (), (1, 2, 3, 4, 5)], ids=str
)
def test_sharing_changes_no_token(new_pages: SearchEnvironment, prompt: tuple[int, ...]) -> None:
    trajectory, _ = roll_out(new_pages, 1)
    [turn] = trajectory.turns
    before = change(turn, prompt_token_ids=(1, 2, 3), completion_token_ids=(4, 5))
    now = change(turn, prompt_token_ids=prompt)
    assert share_tokens(now, before) == now
