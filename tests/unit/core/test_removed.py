"""What is gone says what takes its place."""

import pytest

from drag_ray.cli.main import main
from drag_ray.config import build, load
from drag_ray.errors import ConfigError
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.removed import COMMANDS, OPTIONS


@pytest.mark.parametrize(("key", "hint"), OPTIONS.items())
def test_a_removed_option_is_refused_with_its_successor_in_files_and_on_the_command_line(key: str, hint: str) -> None:
    section, _, rest = key.partition(".")
    name, _, field = rest.rpartition(".")
    options = {section: {name: {field: 1}} if name else {field: 1}}
    with pytest.raises(ConfigError) as in_a_file:
        build(RunConfig, options)
    assert f"unknown key {key!r}. {hint}" in str(in_a_file.value)
    with pytest.raises(ConfigError) as on_the_line:
        load(RunConfig, [f"--{key.replace('_', '-')}", "1"])
    assert hint in str(on_the_line.value)


@pytest.mark.parametrize(("command", "hint"), COMMANDS.items())
def test_a_removed_command_names_its_successor(command: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "runs/mine/collect"]) == 2
    assert capsys.readouterr().err == f"drag-ray {command}: is gone. {hint}\n"
