"""Replies to a request, drawn and searched for, and the one of them that is expected to find most."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace

from drag_ray.agent.action import collapse_spaces
from drag_ray.agent.choice import Choice
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.rollout import read_action
from drag_ray.agent.task import compute_seed
from drag_ray.baselines.candidates import CandidateReader
from drag_ray.baselines.gain_model import GainModel, choose_best
from drag_ray.engine.generate import GenerateFn, Generation, Request
from drag_ray.engine.sampling import PRESETS
from drag_ray.types import ActionKind


class BestReply:
    """Draws replies to a request and chooses one of them, or the question itself. The request says how they are drawn.

    Args:
        generate: the engine.
        agent: whose replies these are.
        reader: searches for them, and describes what is found by the features of `gain_model`.
        num_samples: replies: one is greedy, the others are drawn.
        gain_model: says what to expect of a search.
        choosing: searches and chooses beside the event loop; one thread of its own, unless it is shared.
    """

    def __init__(
        self,
        generate: GenerateFn,
        agent: AgentConfig,
        reader: CandidateReader,
        num_samples: int,
        gain_model: GainModel,
        choosing: Executor | None = None,
    ) -> None:
        self._generate = generate
        self._may_be_empty = agent.expands
        self._protocol = get_protocol(agent.protocol)
        self._reader = reader
        self._num_samples = num_samples
        self._gain_model = gain_model
        self._choosing = choosing or ThreadPoolExecutor(1, "choose")  # one question after the other

    async def __call__(self, request: Request, question: str) -> Choice:
        """Draw, search and choose.

        Raises:
            SearchIndexError: a search failed; and what the engine raises.
        """
        generations = await self._draw(request)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._choosing, self._choose, question, generations)

    async def _draw(self, request: Request) -> list[Generation]:
        """The greedy reply and the drawn ones, each with a seed of its own, which does not depend on how many there are."""
        greedy = replace(request, sampling=PRESETS["greedy"])
        drawn = [replace(request, seed=compute_seed(request.seed, str(number))) for number in range(1, self._num_samples)]
        return await asyncio.gather(*map(self._generate, [greedy, *drawn]))

    def _choose(self, question: str, generations: Sequence[Generation]) -> Choice:
        started = time.perf_counter()
        asked = self._reader.search_question(question)
        candidates, replies = [], []
        for place, (query, generation) in enumerate(self._find_searches(question, generations).items()):
            candidate = self._reader.search(question, query)
            candidates.append(candidate)
            replies.append(generation)
            if place == 0 and generation is generations[0]:
                candidates.append(self._reader.fuse(asked, candidate))
                replies.append(generation)
        features = self._reader.compute_features(question, asked, candidates)
        best = choose_best(self._gain_model.predict(features))
        hits = asked if best is None else candidates[best].shown
        generation = self._search_question(question) if best is None else replies[best]
        num_tokens = sum(drawn.usage.num_completion_tokens for drawn in generations)
        return Choice(generation, hits, num_tokens, time.perf_counter() - started)

    def _find_searches(self, question: str, generations: Sequence[Generation]) -> dict[str, Generation]:
        """The first reply with each query, the greedy one before the others; those that search for the question are left out."""
        searches: dict[str, Generation] = {}
        known = {collapse_spaces(self._reader.repeat(question))}
        for generation in generations:
            action = read_action(generation, self._protocol, may_be_empty=self._may_be_empty)
            query = collapse_spaces(action.query)
            if action.kind is ActionKind.SEARCH and query not in known:
                known.add(query)
                searches[action.query] = generation
        return searches

    def _search_question(self, question: str) -> Generation:
        return Generation(self._protocol.render_search(self._reader.repeat(question)), (), (), "stop")
