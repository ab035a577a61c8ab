"""Calls of tools beside the event loop: each in a thread of its own, within limits of time and of what it may say."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from drag_ray.corpus.text import to_encodable
from drag_ray.errors import ToolError
from drag_ray.tools.images.rollout_images import StoredImage
from drag_ray.tools.observation import ERROR_CHARS, Observation, cut_text
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace

MAX_LATE = 16
"""Calls of a tool that are over their time and still run; beyond it the tool is not called. A thread cannot be ended."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits of a call: seconds, and characters of what the policy is told."""

    timeout_s: float
    max_chars: int


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The outcome of a call: what the policy is told, also of a failure, the error, empty if there is none, how long the call
    ran, the images that the policy is shown beside the text, and the names of those that stay in the prompt; None for all."""

    text: str
    error: str = ""
    seconds: float = 0.0
    images: tuple[StoredImage, ...] = ()
    kept_images: tuple[str, ...] | None = None


class CallTool(Protocol):
    """Calls one tool, in this process or elsewhere."""

    async def call(self, arguments: str, workspace: Workspace, limits: CallLimits) -> CallOutcome:
        """Call the tool with arguments as JSON. Whatever it does is an outcome: it never raises for it."""
        ...


def tell_failure(problem: str, seconds: float = 0.0) -> CallOutcome:
    """The outcome of a call that has failed."""
    told = to_encodable(problem)[:ERROR_CHARS]
    return CallOutcome(f"The call failed: {told}", told, seconds)


@dataclass(slots=True)
class _Running:
    """A call under way; looked at under the caller's lock."""

    has_ended: bool = False
    is_late: bool = False


class ToolCaller:
    """Calls one tool, any number of times at once. The process has one for each of its tools."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._late = 0
        self._lock = threading.Lock()

    @property
    def num_late(self) -> int:
        """Calls that are over their time and still run."""
        return self._late

    async def call(self, arguments: str, workspace: Workspace, limits: CallLimits) -> CallOutcome:
        """See `CallTool`."""
        started = time.perf_counter()
        try:
            if self._late >= MAX_LATE:
                raise ToolError(f"{self._tool.name} does not answer: {self._late} earlier calls of it still run")
            outcome = await self._run_in_time(lambda: self._run(arguments, workspace, limits), limits.timeout_s)
            return replace(outcome, seconds=time.perf_counter() - started)
        except ToolError as error:
            return tell_failure(str(error), time.perf_counter() - started)

    def _run(self, arguments: str, workspace: Workspace, limits: CallLimits) -> CallOutcome:
        observation: Any = self._tool.run(self._tool.read_arguments(arguments), workspace)
        if not isinstance(observation, Observation):
            raise TypeError(f"run returned {type(observation).__name__}, expected an Observation")
        text = to_encodable(cut_text(observation.text, limits.max_chars))
        if observation.images and not self._tool.shows_images:
            raise TypeError("run returned images, which the tool does not announce (shows_images)")
        workspace.images.check(observation.kept_images or ())
        images = workspace.images.store(observation.images)
        captioned = tuple(image._replace(caption=to_encodable(image.caption)) for image in images)
        return CallOutcome(text, images=captioned, kept_images=observation.kept_images)

    async def _run_in_time(self, work: Callable[[], CallOutcome], timeout_s: float) -> CallOutcome:
        """The result of `work`, run in a daemon thread; waits `timeout_s` at most."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[CallOutcome] = loop.create_future()
        state = _Running()

        def report(result: CallOutcome, problem: ToolError | None) -> None:
            if not ended.done():
                ended.set_exception(problem) if problem else ended.set_result(result)

        def run() -> None:
            result, problem = CallOutcome(""), None
            try:
                result = work()
            except ToolError as error:
                problem = error
            except BaseException as error:  # of a user's code, which may call sys.exit as well; it is one turn's alone
                _logger.warning("tool %s failed", self._tool.name, exc_info=error)
                problem = ToolError(f"{self._tool.name} failed ({type(error).__name__})")
            with self._lock:
                state.has_ended = True
                self._late -= state.is_late
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(report, result, problem)

        threading.Thread(target=run, name=f"tool-{self._tool.name}", daemon=True).start()
        try:
            return await asyncio.wait_for(ended, timeout_s)
        except TimeoutError:
            with self._lock:
                state.is_late = not state.has_ended
                self._late += state.is_late
            raise ToolError(f"{self._tool.name} did not answer within {timeout_s:g} s") from None
