"""Slow tools in processes of their own: actors with CPUs and GPUs of theirs, which the workers of all engines call.

A tool that computes for long holds up the engine in whose process it runs, and one that ends its process ends the engine. Here it
costs the call.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from drag_ray.cluster.nodes import count_cpus
from drag_ray.engine.vllm import VllmEngine
from drag_ray.errors import ConfigError, DragRayError
from drag_ray.messages import show_messages
from drag_ray.rollout.config import RolloutConfig, ToolHostConfig
from drag_ray.rollout.degraded_images import DegradedSearcher, open_degraded_images
from drag_ray.rollout.options import WorkerOptions, locate_index
from drag_ray.search.searcher import Searcher
from drag_ray.tools.calls import CallLimits, CallOutcome, CallTool, ToolCaller, tell_failure
from drag_ray.tools.images.rollout_images import RolloutImages
from drag_ray.tools.workspace import Workspace

_logger = logging.getLogger(__name__)

_MAX_LATE = 4
"""calls that are over their time and still run, at which a process is ended"""
_PATIENCE_S = 30.0
"""until it is said that processes wait for room"""


class ToolHost:
    """The process of a tool."""

    def __init__(self, options: WorkerOptions, name: str) -> None:
        self._options = options
        self._agent = options.agent.model_copy(update={"tools": (name,)})

    @cached_property
    def _callers(self) -> Mapping[str, ToolCaller]:
        show_messages()
        return self._agent.load_tools().callers

    @cached_property
    def _pages(self) -> Searcher:
        index_dir, degraded = locate_index(self._options), open_degraded_images(self._options)
        return DegradedSearcher(index_dir, degraded) if degraded else Searcher(index_dir)

    async def open(self) -> list[str]:
        """Load the tool; returns the names under which the model calls what there is of it. Raises ConfigError where it cannot be
        had here; SearchIndexError: see `Searcher`."""
        assert self._pages
        return list(self._callers)

    async def call(self, name: str, arguments: str, images: RolloutImages, limits: CallLimits) -> CallOutcome:
        """As `ToolCaller.call`, with the images that the rollout has seen so far."""
        caller = self._callers[name]
        if caller.num_late >= _MAX_LATE:
            os._exit(1)  # a thread cannot be ended, and its process can: Ray begins another one, and makes this call there
        return await caller.call(arguments, Workspace(self._pages, images), limits)


class HostedTool:
    """A tool that actors run, behind `CallTool`. What a call waits for a free one is part of its time."""

    def __init__(self, name: str, hosts: Sequence[Any]) -> None:
        self._name = name
        self._free = asyncio.Queue[Any]()
        for host in hosts:
            self._free.put_nowait(host)

    async def call(self, arguments: str, workspace: Workspace, limits: CallLimits) -> CallOutcome:
        """See `CallTool`."""
        started = time.perf_counter()
        try:
            outcome = await asyncio.wait_for(self._ask(arguments, workspace.images, limits), limits.timeout_s)
        except TimeoutError:
            outcome = tell_failure(f"{self._name} did not answer within {limits.timeout_s:g} s")
        except RayError as error:
            _logger.warning("tool %s failed", self._name, exc_info=error)
            outcome = tell_failure(f"{self._name} failed: its process has ended")
        return replace(outcome, seconds=time.perf_counter() - started)

    async def _ask(self, arguments: str, images: RolloutImages, limits: CallLimits) -> CallOutcome:
        host = await self._free.get()
        try:
            answer = asyncio.ensure_future(host.call.remote(self._name, arguments, images, limits))
        except Exception:  # the call has not come to the actor
            self._free.put_nowait(host)
            raise
        answer.add_done_callback(partial(self._release, host))
        return await asyncio.shield(answer)  # the actor goes on with a call that its rollout has given up

    def _release(self, host: Any, answer: asyncio.Future[CallOutcome]) -> None:
        self._free.put_nowait(host)
        if not answer.cancelled():
            answer.exception()  # asyncio would complain of one that nobody waits for any more


@contextlib.contextmanager
def host_tools(options: WorkerOptions, settings: RolloutConfig) -> Generator[WorkerOptions]:
    """Start the actors of `rollout.tool_hosts`, and end them afterwards; gives options for workers that call them. Raises
    ConfigError where the agent has no such tool, or one cannot be had in the actor's process; DragRayError: what else an actor
    meets that begins."""
    if unknown := sorted({config.tool for config in settings.tool_hosts} - set(options.agent.called_tools)):
        raise ConfigError(f"rollout.tool_hosts: the agent has no {', '.join(unknown)} to call. Name it in agent.tools as well.")
    if not settings.tool_hosts:
        yield options
        return
    _say_room(settings)
    slim = replace(options, baselines=None, proposers=None, prompt_sets=(), build_engine=VllmEngine)
    hosts = {config.tool: [_start(config, slim) for _ in range(config.num_actors)] for config in settings.tool_hosts}
    try:
        names = _open(hosts)
        hosted = [(name, hosts[config.tool]) for config in settings.tool_hosts for name in names[config.tool]]
        yield replace(options, build_callers=partial(_build_callers, hosted))
    finally:
        for host in (host for of_tool in hosts.values() for host in of_tool):
            ray.kill(host)


def _build_callers(hosted: Sequence[tuple[str, Sequence[Any]]]) -> Mapping[str, CallTool]:
    return {name: HostedTool(name, hosts) for name, hosts in hosted}


def _start(config: ToolHostConfig, options: WorkerOptions) -> Any:
    actor: Any = ray.remote(ToolHost)
    resources = {"num_cpus": config.num_cpus, "num_gpus": config.num_gpus}
    # A call that finds its actor gone waits for the next one; the call that has ended it does so once more.
    lasting = {"max_restarts": -1, "max_task_retries": 1}
    return actor.options(**resources, **lasting, max_concurrency=1).remote(options, config.tool)


def _open(hosts: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    """The names under which the model calls what there is of each tool, when all of its actors have begun."""
    opened = {tool: [host.open.remote() for host in of_tool] for tool, of_tool in hosts.items()}
    every = [one for of_tool in opened.values() for one in of_tool]
    if waiting := ray.wait(every, num_returns=len(every), timeout=_PATIENCE_S)[1]:
        _logger.warning(f"tools: {len(waiting)} of {len(every)} actors of rollout.tool_hosts have not begun, and are waited for")
    try:
        return {tool: ray.get(of_tool)[0] for tool, of_tool in opened.items()}
    except RayTaskError as error:
        raise (error.cause if isinstance(error.cause, DragRayError) else error) from None


def _say_room(settings: RolloutConfig) -> None:
    """Say where tools leave no CPU for an engine, which would be waited for in silence."""
    taken, there = sum(config.num_actors * config.num_cpus for config in settings.tool_hosts), count_cpus()
    if taken and taken + 1 > there:
        _logger.warning(
            f"tools: rollout.tool_hosts take {taken:g} CPUs, and the cluster has {there} now, of which an engine wants one. "
            "If no nodes will come, give them fewer (num_cpus 0 reserves none)."
        )
