"""Rollouts of a scripted policy."""

import asyncio
from collections.abc import Callable
from typing import Any

from factories import build_question

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.corpus.image_store import ImageStores
from drag_ray.engine.generate import GenerateFn, Request
from drag_ray.types import Evidence, Question, Trajectory

QUESTION = build_question(question="How fast may it turn?", evidence=(Evidence("b.pdf", 2), Evidence("z.pdf", 9)))


def build_rollouts(
    generate: GenerateFn, environment: SearchEnvironment, *, images: ImageStores | None = None, **options: object
) -> Rollouts:
    """Rollouts over the pages of the environment; each of three turns, unless the options of the agent say otherwise."""
    config = AgentConfig(**{"query_mode": "rewrite", "top_k": 2, "max_iterations": 3, **options})  # type: ignore[arg-type]
    pages: Any = environment._index  # pyright: ignore[reportPrivateUsage]
    return Rollouts(config, Policy("model"), generate, environment, "index", pages=pages, images=images)


def roll_out(generate: GenerateFn, environment: SearchEnvironment, question: Question = QUESTION, **options: Any) -> Trajectory:
    """One of `build_rollouts`."""
    rollouts = build_rollouts(generate, environment, **options)
    return asyncio.run(rollouts.run(RolloutTask(question, 0, "default", 7)))


def script(*replies: str | Exception) -> Callable[[Request], str]:
    """Replies by turn: as many assistant messages as the request has."""

    def reply(request: Request) -> str:
        turn = sum(message["role"] == "assistant" for message in request.messages)
        found = replies[turn]
        if isinstance(found, Exception):
            raise found
        return found

    return reply
