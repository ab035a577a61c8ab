"""Options: three sources, and errors that say which of them was wrong."""

from pathlib import Path

import pytest

from drag_ray.config import load
from drag_ray.errors import ConfigError
from drag_ray.run_config import RunConfig


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_the_command_line_goes_before_the_file_and_the_file_before_the_defaults(tmp_path: Path) -> None:
    path = write(tmp_path, '[agent]\ntop_k = 4\nmax_iterations = 2\n[collect]\npresets = ["greedy", "diverse"]\n')
    config = load(RunConfig, ["--config", str(path), "--agent.top-k", "6"])
    assert (config.agent.top_k, config.agent.max_iterations, config.agent.depth) == (6, 2, 10)
    assert config.collect.presets == ("greedy", "diverse")


def test_lists_and_paths_come_from_the_command_line() -> None:
    config = load(RunConfig, ["--run-dir", "/runs/a", "--collect.presets", "greedy", "--collect.presets", "creative"])
    assert config.run_dir == Path("/runs/a")
    assert config.collect.presets == ("greedy", "creative")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[agent]\ntopk = 3\n", r"run\.toml: unknown key 'agent\.topk'\. Did you mean 'top_k'\? Allowed here: .*max_iterations"),
        ("[agnet]\ntop_k = 3\n", r"run\.toml: unknown key 'agnet'\. Did you mean 'agent'\?"),
        ('[agent]\ntop_k = "three"\n', r"run\.toml: agent\.top_k: .*valid integer.*got 'three'"),
        ("[agent]\ntop_k = 0\n", r"run\.toml: agent\.top_k: .*greater than or equal to 1, got 0"),
        ('[collect]\npresets = ["warm"]\n', r"run\.toml: collect\.presets\.0: .*'greedy', 'low_temp'.*got 'warm'"),
        ("[agent]\ntop_k = 5\ndepth = 3\n", r"depth 3 is below top_k 5"),
        ("not toml", r"not a readable TOML file"),
    ],
)
def test_a_wrong_file_names_the_key_the_file_and_what_is_allowed(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(RunConfig, ["--config", str(write(tmp_path, text))])


def test_a_wrong_argument_names_the_command_line(tmp_path: Path) -> None:
    path = write(tmp_path, "[agent]\ntop_k = 3\n")
    with pytest.raises(ConfigError, match=r"command line: agent\.top_k: .*got 'x'"):
        load(RunConfig, ["--config", str(path), "--agent.top-k", "x"])


def test_an_unknown_argument_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load(RunConfig, ["--agent.topp", "3"])
    assert "--agent.topp" in capsys.readouterr().err


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.toml: no such file"):
        load(RunConfig, ["--config", str(tmp_path / "nothing.toml")])
