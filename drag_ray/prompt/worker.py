"""One engine with its index, for an optimisation. It knows nothing of the actor that holds it."""

import asyncio
from collections.abc import Sequence

from drag_ray.agent.action import collapse_spaces
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.retrieval import open_page_index
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.task import RolloutTask
from drag_ray.engine.generate import Request
from drag_ray.engine.reasoning import THINK, split_reasoning
from drag_ray.engine.sampling import PRESETS
from drag_ray.engine.vllm import VllmEngine
from drag_ray.prompt.feedback import Outcome, build_outcome
from drag_ray.rollout.options import WorkerOptions, locate_index, open_stores, start_engine
from drag_ray.search.config import SYNTAX_HELP
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Trajectory

_PROPOSAL_PRESET = "default"


class PromptWorker:
    """Rolls out questions with any instructions, many at once, and writes replies to other requests.

    Args:
        options: what to run with.
        page_chars: characters of a right page in what is said of a rollout.
        max_tokens: of a reply that is no rollout's.
    """

    def __init__(self, options: WorkerOptions, page_chars: int, max_tokens: int) -> None:
        self._options = options
        self._page_chars = page_chars
        self._max_tokens = max_tokens
        self._generate = start_engine(options)
        self._searcher = Searcher(locate_index(options))
        index = open_page_index(self._searcher, options.agent.retrieval, options.index_dir.parent)
        self._environment = SearchEnvironment(index, options.agent.top_k, options.agent.depth)
        self._slots = asyncio.Semaphore(options.concurrent_rollouts)

    async def roll_out(self, instructions: str, tasks: Sequence[RolloutTask]) -> list[Outcome]:
        """The outcomes of these rollouts, in their order; one that fails is tried again as often as `max_tries` says."""
        options, record = self._options, self._searcher.record
        agent = options.agent.instruct(instructions)
        search = (self._environment, record.fingerprint, SYNTAX_HELP[record.syntax])
        rollouts = Rollouts(
            agent, options.policies[""], self._generate, *search, pages=self._searcher, images=open_stores(options)
        )
        trajectories = await asyncio.gather(*(self._run(rollouts, task) for task in tasks))
        return [build_outcome(trajectory, self._read_page(trajectory.evidence[0])) for trajectory in trajectories]

    async def write(self, request: str, seed: int) -> str | None:
        """The reply to a request, without its reasoning; None if it ends within that."""
        generation = await self._generate(
            Request(({"role": "user", "content": request},), PRESETS[_PROPOSAL_PRESET], self._max_tokens, seed)
        )
        return split_reasoning(THINK + generation.text if generation.in_reasoning else generation.text)[1]

    def close(self) -> None:
        """Stop the engine's processes, if it has any."""
        if isinstance(self._generate, VllmEngine):
            self._generate.close()

    async def _run(self, rollouts: Rollouts, task: RolloutTask) -> Trajectory:
        async with self._slots:
            trajectory = await rollouts.run(task)
            for _ in range(1, self._options.max_tries):
                if not trajectory.error:
                    break
                trajectory = await rollouts.run(task)
        return trajectory

    def _read_page(self, page: Evidence) -> str:
        return collapse_spaces(self._searcher.text(page))[: self._page_chars]
