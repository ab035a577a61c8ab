"""The declaration of a task, and one rollout of it as the loop sees it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from drag_ray.agent import tasks
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchEnvironment, SearchResult
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.shown_images import Content
from drag_ray.engine.generate import Message
from drag_ray.types import Question, Turn
from drag_ray.variants import load_variant

NameImage = Callable[[str], str]
"""Gives a picture that is shown, by its key, the name that tools know it by."""


@dataclass(frozen=True)
class Setting:
    """Setting of all rollouts of a policy. `max_turns` are the replies that one may take, unless its task says otherwise."""

    config: AgentConfig
    prompts: Prompts
    environment: SearchEnvironment
    max_turns: int


class Episode(Protocol):
    """One rollout as its task sees it. It is told of every reply in turn."""

    max_turns: int
    """replies that it may take"""
    asks_for_answer: bool
    """whether the last of several replies is asked for the answer"""

    def open(self, prompts: Prompts) -> list[Message]:
        """The conversation before the first reply, in the words of these prompts; asked for before any reply is told."""
        ...

    async def search(self, query: str) -> tuple[SearchResult, Content]:
        """The result of a reply with a query, and the message to the policy about it."""
        ...

    def follow_call(self, observation: Content) -> Content:
        """The message about a call, which returned this."""
        ...

    def remind(self, problem: str) -> Content:
        """The message about a reply that cannot be read."""
        ...

    def is_complete(self, turn: Turn) -> bool:
        """True if the task is done with this turn."""
        ...


@dataclass(frozen=True)
class Task:
    """A task, as a module of `tasks` declares it in TASK.

    Attributes:
        summary: what is asked of the policy, for the option's text.
        protocol: how its replies are written; empty for `agent.protocol`.
        ask: the ranking that rollouts of a question begin with and are measured against.
        begin: a rollout, from that ranking; it names what it shows where a tool takes pictures.
        choose_instructions: the first paragraph of the system prompt.
        choose_wanted: what a reply is to hold, as `ActionProtocol.instructions` takes it.
        check: raises ValueError where the agent's options do not fit it.
        count_shown: how many pages a prompt can show, and how often the question.
    """

    summary: str
    ask: Callable[[Setting, Question], Awaitable[SearchResult]]
    begin: Callable[[Setting, Question, SearchResult, NameImage | None], Awaitable[Episode]]
    choose_instructions: Callable[[AgentConfig], str]
    choose_wanted: Callable[[AgentConfig], str]
    check: Callable[[AgentConfig], None]
    count_shown: Callable[[AgentConfig], tuple[int, int]]
    protocol: str = ""


def load_task(name: str) -> Task:
    """The task of a name."""
    return load_variant(tasks, name).TASK
