"""The model's Python as a tool: what it is told, and where the tool is refused."""

from pathlib import Path

import pytest
from sandboxes import needs_sandbox

from drag_ray.agent.config import AgentConfig
from drag_ray.errors import ConfigError
from drag_ray.tools import sandbox
from drag_ray.tools.calls import CallLimits, ToolCaller
from drag_ray.tools.config import PythonInterpreterConfig, ToolOptions
from drag_ray.tools.python_interpreter import make_tool
from drag_ray.tools.workspace import Workspace

LIMITS = CallLimits(timeout_s=30, max_chars=1000)
AGENT = {"protocol": "tools", "max_iterations": 3, "tools": ["search", "python_interpreter"]}


@pytest.fixture(scope="module")
def caller() -> ToolCaller:
    return ToolCaller(make_tool(ToolOptions(PythonInterpreterConfig(timeout_s=2, memory_mib=128))))


@pytest.mark.seconds
@needs_sandbox
@pytest.mark.parametrize(
    ("code", "text", "error"),
    [
        ("print(6 * 7)", "42\n", ""),
        ("6 * 7", "The program printed nothing.", ""),
        ("import sys; print(1); print('careful', file=sys.stderr)", "1\n\nstderr:\ncareful\n", ""),
        ("x = 1\\nx.y", None, "the program failed with status 1; stderr: Traceback (most recent call last):"),
        ("import sys; sys.exit(3)", None, "the program failed with status 3"),
        ("import time; print('begun', flush=True); time.sleep(9)", None, "did not end within 2 s; it had printed: begun"),
        ("print('x' * 2000)", "x" * 1000 + "\n[cut: the first 1,000 of 2,001 characters]", ""),
        ("open('/etc/passwd')", None, "No such file or directory: '/etc/passwd'"),
        ("", None, "code: String should have at least 1 character"),
    ],
)
async def test_the_model_is_told_what_its_program_printed(
    caller: ToolCaller, workspace: Workspace, code: str, text: str | None, error: str
) -> None:
    outcome = await caller.call(f'{{"code": "{code}"}}', workspace, LIMITS)
    if text is not None:
        assert (outcome.text, outcome.error) == (text, "")
    assert error in outcome.error
    assert bool(error) == bool(outcome.error)


@needs_sandbox
async def test_an_agent_that_names_it_has_it_and_one_call_knows_nothing_of_another(
    caller: ToolCaller, workspace: Workspace
) -> None:
    assert not (await caller.call('{"code": "x = 1"}', workspace, LIMITS)).error
    assert "NameError" in (await caller.call('{"code": "print(x)"}', workspace, LIMITS)).error
    assert set(AgentConfig(**AGENT).load_tools().callers) == {"python_interpreter"}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("", "bubblewrap is not installed .no program bwrap.. Install it"),
        (
            "#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n",
            "No permissions to create.*needs user namesp",
        ),
        ('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n', "bubblewrap runs nothing here: "),
        ("#!/bin/sh\necho '[]'\necho '[]'\n", "bubblewrap runs nothing here: "),
    ],
    ids=["none", "without namespaces", "one that protects nothing", "one that lies"],
)
def test_without_sandbox_the_agent_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, problem: str
) -> None:
    if program:
        (tmp_path / "bwrap").write_text(program)
        (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox.open_sandbox.cache_clear()
    config = AgentConfig(**AGENT, python_interpreter=PythonInterpreterConfig(memory_mib=129))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=rf"python_interpreter runs nothing unprotected.*{problem}"):
        config.load_tools()
