"""A function that looks something up for the policy."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drag_ray.tools.function import Function
from drag_ray.tools.observation import Observation
from drag_ray.tools.workspace import Workspace


@dataclass(frozen=True)
class Tool(Function):
    """A function with what it does.

    Attributes:
        run: from checked arguments and the rollout's workspace to what the policy is told. It runs in a thread of its own, beside
            other calls of the same tool, for as long as `agent.tool_timeout_s`. A ToolError that it raises is told to the policy
            word for word; of any other exception the policy learns the name alone.
        check_index: raises a ConfigError where the folder of an index stage lacks what the tool looks at; it is asked before an
            engine starts.
        shows_images: whether it may return images, or works on them: the model has to be one that sees images.
    """

    run: Callable[[Any, Workspace], Observation]
    check_index: Callable[[Path], object] = field(default=lambda _: None, kw_only=True)
    shows_images: bool = field(default=False, kw_only=True)
