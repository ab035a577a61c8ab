"""A tool that says which process it runs in, and ends that when it is asked to."""

import os
import signal

from drag_ray.tools.function import Arguments
from drag_ray.tools.observation import Observation
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace


class EndingArguments(Arguments):
    ends: bool = False
    """Whether the process ends."""


def name_process(arguments: EndingArguments, workspace: Workspace) -> Observation:
    if arguments.ends:
        os.kill(os.getpid(), signal.SIGKILL)
    return Observation(str(os.getpid()))


TOOL = Tool("name_process", "Say which process this is.", EndingArguments, name_process)
