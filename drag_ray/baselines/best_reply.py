"""Replies that are drawn, and the one of them that a reward model likes best. Nothing is searched before the choice."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from drag_ray.agent.protocols.protocol import ActionProtocol
from drag_ray.agent.rollout import compute_seed, read_action
from drag_ray.engine.generate import GenerateFn, Generation, Message, Request
from drag_ray.types import ActionKind

ScoreFn = Callable[[Sequence[Message], Sequence[str], Sequence[dict[str, Any]]], list[float]]
"""From a prompt, replies to it and the tools of the prompt to the reward of each reply, as `RewardModel.score`."""


def draw_first(generate: GenerateFn) -> GenerateFn:
    """Replies that are the first of those that `BestReply` would draw."""

    async def reply(request: Request) -> Generation:
        [generation] = await _draw(generate, request, 1)
        return generation

    return reply


class BestReply:
    """Replies that are the best of several draws. The request says how they are drawn.

    Drawn replies that do not search are not chosen, unless all are such.

    Args:
        generate: draws a reply.
        protocol: of the agent.
        num_samples: draws to choose from.
        build_score: makes the scores, when they are first needed.
        may_be_empty: whether a draw that names nothing to search for is one to choose.
    """

    def __init__(
        self,
        generate: GenerateFn,
        protocol: ActionProtocol,
        num_samples: int,
        build_score: Callable[[], ScoreFn],
        *,
        may_be_empty: bool = False,
    ) -> None:
        self._generate = generate
        self._protocol = protocol
        self._num_samples = num_samples
        self._build_score = build_score
        self._may_be_empty = may_be_empty
        self._score: ScoreFn | None = None
        self._scoring = ThreadPoolExecutor(1, "score")  # beside the event loop, one prompt after the other

    async def __call__(self, request: Request) -> Generation:
        """Draw and choose. Errors are those of `generate`."""
        generations = await _draw(self._generate, request, self._num_samples)
        searches = self._find_searches(generations)
        if len(searches) < 2:
            return next(iter(searches.values()), generations[0])
        loop = asyncio.get_running_loop()
        rewards = await loop.run_in_executor(self._scoring, self._compute_rewards, request, list(searches))
        return searches[max(rewards, key=lambda reply: rewards[reply])]

    def _find_searches(self, generations: Sequence[Generation]) -> dict[str, Generation]:
        """The first generation of each different query, by the reply that says nothing else, which is what training rows hold."""
        searches: dict[str, Generation] = {}
        for generation in generations:
            action = read_action(generation, self._protocol, may_be_empty=self._may_be_empty)
            if action.kind is ActionKind.SEARCH:
                searches.setdefault(self._protocol.render_search(action.query), generation)
        return searches

    def _compute_rewards(self, request: Request, replies: Sequence[str]) -> dict[str, float]:
        self._score = self._score or self._build_score()
        return dict(zip(replies, self._score(request.messages, replies, request.tools), strict=True))


async def _draw(generate: GenerateFn, request: Request, num_samples: int) -> list[Generation]:
    """Replies to the request, each with a seed of its own, which does not depend on how many there are."""
    seeds = (compute_seed(request.seed, str(number)) for number in range(num_samples))
    return await asyncio.gather(*(generate(replace(request, seed=seed)) for seed in seeds))
