"""Commands and configurations of README.md and docs/ are accepted: each is parsed by what would run it."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from figures import ROOT, list_files

from drag_ray.api.run_folder import PIPELINE, list_sections
from drag_ray.cli.endpoint_commands import ENDPOINT_COMMANDS
from drag_ray.cli.file_commands import FILE_COMMANDS
from drag_ray.cli.main import main
from drag_ray.config import build, load
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.stages import SERVE, STAGES
from drag_ray.removed import explain_option
from drag_ray.serve.config import ServeConfig
from drag_ray.serve.ingress.key import read_keys

NOT_RUN = {
    "pip install": "it changes the installation; tests/contracts/test_core_install.py installs the core",
    "ray ": "it starts machines; tests/contracts/test_deployment.py has Ray's launcher do so against moto",
    "(umask 077; ray get-auth-token": "it writes into the home folder; tests/unit/core/test_cluster.py makes a token",
    "export ": "a variable",
    "docker ": "it needs a daemon; `make lint` checks the Dockerfile",
    "kubectl ": "it needs a cluster; tests/contracts/test_cluster_files.py checks the manifests",
    "cd ": "a folder of the repository",
    "source ": "it activates what `make setup` makes",
    "curl ": "it needs an endpoint; tests/integration/serve/test_serve_stage.py sends the same",
    "install -d": "it needs another group; tests/unit/core/test_folders.py has the modes",
}
"""Beginnings of commands that no parser of this project reads, and why they are not run here."""
STAGE_COMMANDS = {*STAGES, SERVE.name, PIPELINE}


def list_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def list_commands(text: str) -> list[str]:
    """The lines of the blocks, and what stands within a line with options."""
    lines = [line for block in list_blocks(text, "bash") for line in block.replace("\\\n", " ").splitlines()]
    inline = re.findall(r"`((?:python jobs/|drag-ray )[^`]*--[^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    commands = [re.sub(r"\s+# .*", "", line).strip() for line in [*lines, *inline]]
    return [command for command in dict.fromkeys(commands) if command and not re.search(r"COMMAND|\.\.\.|--help", command)]


CASES = [(path, command) for path in list_files() for command in list_commands(path.read_text(encoding="utf-8"))]


def parse_stage(name: str, arguments: list[str]) -> None:
    """Read the options, and let the stage refuse those that do not go together."""
    config = load(RunConfig, arguments, list_sections(name))
    if name in STAGES:
        config.take(STAGES[name].sections).check()


def run_elsewhere(name: str, arguments: list[str], folder: Path) -> int:
    """The exit status of a command for runs that are not there, or an endpoint that is not: 2 says that an argument is wrong."""
    local = [argument.replace("s3://BUCKET", folder.as_uri()) for argument in arguments]
    return main([name, *local, *(["--url", "http://127.0.0.1:9"] if name in ENDPOINT_COMMANDS and "--url" not in local else [])])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with what the commands name: the jobs, conversations, and the reward that docs/extend.md shows."""
    (tmp_path / "jobs").symlink_to(ROOT / "jobs")
    for name in ("mine.jsonl", "held_out.jsonl", "pairs.jsonl"):
        (tmp_path / name).write_text('{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n')
    (tmp_path / "my_package").mkdir()
    [reward] = [block for block in list_blocks((ROOT / "docs" / "extend.md").read_text(), "python") if "Rollout" in block]
    (tmp_path / "my_package" / "rewards.py").write_text(reward)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("path", "command"), CASES, ids=[f"{path.stem}: {command[:60]}" for path, command in CASES])
def test_documented_commands_are_accepted(path: Path, command: str, folder: Path) -> None:
    words = shlex.split(command.partition(" -- ")[2] or command)  # after it stands what a submitted job runs
    if words[0] == "make":
        assert re.search(rf"^{words[-1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif words[0] == "python" and words[1].startswith("benchmarks/"):
        assert (ROOT / words[1]).is_file()
    elif words[0] in ("python", "drag-ray"):
        name = Path(words[1]).stem
        assert words[0] == "drag-ray" or Path(words[1]).is_file()
        if name in STAGE_COMMANDS:
            parse_stage(name, words[2:])
        else:
            assert name in FILE_COMMANDS | ENDPOINT_COMMANDS
            assert run_elsewhere(name, words[2:], folder) == 1
    else:
        assert command.startswith(tuple(NOT_RUN)), "say in NOT_RUN why it is not run"


@pytest.mark.parametrize("path", list_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_option_that_is_gone_is_advised(path: Path) -> None:
    named = set(re.findall(r"[a-z_]+(?:\.[a-z_-]+)+", path.read_text(encoding="utf-8")))
    assert [name for name in named if explain_option(name) and not name.endswith(".py")] == []


@pytest.mark.parametrize("path", list_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_documented_configurations_are_accepted(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for block in list_blocks(text, "toml"):
        if block.startswith("[[keys]]"):
            (key_path := tmp_path / "keys.toml").touch(mode=0o600)
            key_path.write_text(block)
            assert read_keys(ServeConfig(api_key_file=key_path))
        else:
            build(RunConfig, tomllib.loads(block))
    for block in list_blocks(text, "json"):
        json.loads(block)
    for block in list_blocks(text, "python"):
        compile(block, str(path), "exec", flags=0x2000)  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
