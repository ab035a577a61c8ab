"""One rollout at a time, in this process: a policy with its engine, its tools and the index of its run."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from threading import Thread
from typing import Any, Self, TypeVar

from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.retrieval import open_page_index
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.task import RolloutTask
from drag_ray.engine.generate import Request, split_reasoning
from drag_ray.engine.sampling import PRESETS, PresetName
from drag_ray.errors import ConfigError
from drag_ray.rollout.options import WorkerOptions, open_stores, start_engine
from drag_ray.search.config import SYNTAX_HELP
from drag_ray.search.searcher import Searcher
from drag_ray.transcripts.thumbnails import ThumbnailStore
from drag_ray.transcripts.transcript import Transcript, build_transcript
from drag_ray.types import Evidence, Question

_Result = TypeVar("_Result")


class Agent:
    """A policy that is asked. Its engine lives until `close`, or the end of the `with` block.

    Rollouts run in an event loop of their own, so that a notebook, which has one already, can wait for them.

    Args:
        options: as those of a worker; the first policy is asked.

    Raises:
        ConfigError: the engine refuses its options, or a tool cannot be had.
        EngineDiedError: the engine does not start.
        SearchIndexError: the index cannot be opened.
    """

    def __init__(self, options: WorkerOptions) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="drag_ray agent", daemon=True)
        self._thread.start()
        self._engine: Any = None
        stores = open_stores(options)
        self._book = ThumbnailStore(options.index_dir.parent, stores.roots if stores else ())
        try:
            self._ask_with = self._wait_for(self._open(options))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def roll_out(
        self,
        question: str,
        evidence: Sequence[tuple[str, int]] = (),
        preset: PresetName = "greedy",
        seed: int = 0,
        instructions: str = "",
    ) -> Transcript:
        """Ask a question, and let the policy search for it. What goes wrong in a rollout is written in its transcript.

        Threads may ask at the same time, and are answered together.

        Args:
            question: what is asked.
            evidence: pages that count as right, as (file, 1-based page number), so that the transcript has ranks and rewards.
            preset: how replies are drawn.
            seed: of replies that are drawn at random.
            instructions: in place of `agent.instructions`, to try others.

        Raises:
            ConfigError: there is no such preset.
            EngineDiedError: the engine is gone.
            BudgetError: what an endpoint's replies may cost is spent.

        Examples:
            >>> transcript = agent.roll_out("To list the images of a repository (ECR)")
            >>> transcript.describe_question()
            'the question alone: no evidence among the first 10'
        """
        _check_preset(preset)
        asked = Question("asked", question, tuple(Evidence(*page) for page in evidence))
        task = RolloutTask(asked, 0, preset, seed)
        return build_transcript("", self._wait_for(self._ask_with(instructions).run(task)), self._book)

    def write(self, request: str, preset: PresetName = "default", seed: int = 0, max_tokens: int = 1024) -> str:
        """The model's reply to any request, without its reasoning; empty where the reply ends within that.

        Args:
            request: what it is asked, as a user's message.
            preset: how the reply is drawn.
            seed: of the draw.
            max_tokens: of the reply, its reasoning included.

        Raises:
            ConfigError: there is no such preset.
            PromptTooLongError: the request does not fit into the model's context.
            EngineDiedError: the engine is gone.

        Examples:
            >>> agent.write("Write one word.", preset="greedy", max_tokens=8) != ""
            True
        """
        _check_preset(preset)
        asked = Request(({"role": "user", "content": request},), PRESETS[preset], max_tokens, seed)
        reply = self._wait_for(self._engine(asked))
        return split_reasoning(reply.full_text)[1] or ""

    def close(self) -> None:
        """Stop the engine. It cannot be asked any more.

        Examples:
            >>> agent.close()
        """
        if self._loop.is_running():
            self._wait_for(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _wait_for(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _end(self) -> None:
        """Within the loop, so that what listens to the engine there does not take its end for a failure."""
        close = getattr(self._engine, "close", None)
        if close:
            close()

    async def _open(self, options: WorkerOptions) -> Callable[[str], Rollouts]:
        """From instructions to rollouts with them; within the loop, as an engine keeps the one that it was made in."""
        agent = options.agent
        agent.load_tools()  # what they lack is known before an engine starts
        searcher = Searcher(options.index_dir)
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # an engine in this process says a hundred lines else
        self._engine = start_engine(options)
        index = open_page_index(searcher, agent.retrieval, options.vectors_dir, agent.dense_weight)
        record, environment = searcher.record, SearchEnvironment(index, agent.top_k, agent.depth)
        search = (environment, record.fingerprint, SYNTAX_HELP[record.syntax])
        policy, images = next(iter(options.policies.values())), open_stores(options)

        @cache
        def ask_with(instructions: str) -> Rollouts:
            return Rollouts(agent.instruct(instructions), policy, self._engine, *search, pages=searcher, images=images)

        return ask_with


def _check_preset(preset: str) -> None:
    if preset not in PRESETS:
        raise ConfigError(f"preset {preset!r}: expected one of {', '.join(PRESETS)}.")
