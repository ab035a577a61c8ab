"""Running Python that the model writes, in a sandbox: it computes, and can do nothing else."""

from pydantic import Field

from drag_ray.errors import ConfigError, ToolError
from drag_ray.tools.config import ToolOptions
from drag_ray.tools.function import Arguments
from drag_ray.tools.observation import Observation
from drag_ray.tools.sandbox import Ending, open_sandbox
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace

_ERROR_CHARS = 400
"""of what a failing program writes to stderr, from its end: what went wrong is said last."""


class PythonInterpreterArguments(Arguments):
    """The program."""

    code: str = Field(min_length=1)
    """A whole Python program. It has the standard library, and neither files nor network; print what you want to see."""


def make_tool(options: ToolOptions) -> Tool:
    """The tool, with a sandbox that has been attacked in vain. Raises ConfigError where this machine has none."""
    try:
        sandbox = open_sandbox(options.python_interpreter)  # pyright: ignore[reportArgumentType] (it is frozen, and so has a hash)
    except ConfigError as error:
        raise ConfigError(
            f"agent.tools: python_interpreter runs nothing unprotected, and this machine has no sandbox: {error}"
        ) from None

    def run_python(arguments: PythonInterpreterArguments, workspace: Workspace) -> Observation:
        return _describe(sandbox.run(arguments.code))

    return Tool(
        name="python_interpreter",
        description="Run a Python program and see what it prints. Each call begins anew.",
        arguments=PythonInterpreterArguments,
        run=run_python,
    )


def _describe(ending: Ending) -> Observation:
    """The output of a program. Raises ToolError where it failed, or was ended."""
    if ending.problem:
        raise ToolError(f"the program was ended: {ending.problem}{_show_end(ending.stdout, 'it had printed')}")
    if ending.status:
        raise ToolError(f"the program failed with status {ending.status}{_show_end(ending.stderr, 'stderr')}")
    warned = f"\nstderr:\n{ending.stderr}" if ending.stderr.strip() else ""
    return Observation(f"{ending.stdout}{warned}" if ending.stdout.strip() or warned else "The program printed nothing.")


def _show_end(text: str, name: str) -> str:
    text = text.strip()
    return f"; {name}: {'…' if len(text) > _ERROR_CHARS else ''}{text[-_ERROR_CHARS:]}" if text else ""
