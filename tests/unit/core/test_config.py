"""Options: three sources, errors that say which of them was wrong, successors of what is gone, and the files that are shipped."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from drag_ray.cli.main import main
from drag_ray.config import build, load
from drag_ray.errors import ConfigError
from drag_ray.pipeline.rounds import build_round, check_pipeline
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.removed import COMMANDS, OPTIONS
from drag_ray.serve.config import ServeConfig


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_the_command_line_goes_before_the_file_and_the_file_before_the_defaults(tmp_path: Path) -> None:
    path = write(tmp_path, '[agent]\ntop_k = 4\nmax_iterations = 2\n[collect]\npresets = ["greedy", "diverse"]\n')
    config = load(RunConfig, ["--config", str(path), "--agent.top-k", "6"])
    assert (config.agent.top_k, config.agent.max_iterations, config.agent.depth) == (6, 2, 10)
    assert config.collect.presets == ("greedy", "diverse")
    with pytest.raises(ConfigError, match=r"nothing\.toml: no such file"):
        load(RunConfig, ["--config", str(tmp_path / "nothing.toml")])
    path = write(tmp_path, "[agent]\ntop_k = 3\n")
    with pytest.raises(ConfigError, match=r"command line: agent\.top_k: .*got 'x'"):
        load(RunConfig, ["--config", str(path), "--agent.top-k", "x"])


def test_lists_and_paths_come_from_the_command_line() -> None:
    config = load(RunConfig, ["--run-dir", "/runs/a", "--collect.presets", "greedy", "--collect.presets", "creative"])
    assert config.run_dir == Path("/runs/a")
    assert config.collect.presets == ("greedy", "creative")


@pytest.mark.parametrize("form", [["a=X", "b=Y"], ["a=X,b=Y"], ["a=X", "--serve.adapters", "b=Y"], ['["a=X", "b=Y"]']])
@pytest.mark.parametrize("joined", [False, True])
def test_what_takes_several_values_takes_them_one_after_the_other(form: list[str], joined: bool) -> None:
    first = [f"--serve.adapters={form[0]}"] if joined else ["--serve.adapters", form[0]]
    words = [*first, *form[1:], "--no-serve.grammars", "--evaluate.question-weights", "1", "2.5", "--engine.endpoint.parameters"]
    config = load(RunConfig, [*words, "effort=low", "mode=x", "--serve.adapter-dirs", "/a", "/b"])
    assert config.serve.adapters == ("a=X", "b=Y")
    assert config.serve.adapter_dirs == (Path("/a"), Path("/b"))
    assert config.evaluate.question_weights == (1.0, 2.5)
    assert config.engine.endpoint.parameters == {"effort": "low", "mode": "x"}
    with pytest.raises(ConfigError, match="unrecognized arguments: y"):
        load(RunConfig, ["--run-dir", "x", "y"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[agent]\ntopk = 3\n", r"run\.toml: unknown key 'agent\.topk'\. Did you mean 'top_k'\? Allowed here: .*max_iterations"),
        ("[agnet]\ntop_k = 3\n", r"run\.toml: unknown key 'agnet'\. Did you mean 'agent'\?"),
        ('[agent]\ntop_k = "three"\n', r"run\.toml: agent\.top_k: .*valid integer.*got 'three'"),
        ("[agent]\ntop_k = 0\n", r"run\.toml: agent\.top_k: .*greater than or equal to 1, got 0"),
        ('[collect]\npresets = ["warm"]\n', r"run\.toml: collect\.presets\.0: .*'greedy', 'low_temp'.*got 'warm'"),
        ("[agent]\ntop_k = 5\ndepth = 3\n", r"depth 3 is below top_k 5"),
        ("[finetune]\nepochs = inf\n", r"run\.toml: finetune\.epochs: .*finite number, got inf"),
        ("[process]\nsearch_cost = nan\n", r"run\.toml: process\.search_cost: .*finite number, got nan"),
        ('run_dir = ""\n', r"run\.toml: run_dir: .*for example runs/mine.*got ''"),
        ("not toml", r"not a readable TOML file"),
        (f"run_dir = {'9' * 5_000}", r"not a readable TOML file"),
        (f"run_dir = {'[' * 5_000}", r"not a readable TOML file"),
        (f"a{'.b' * 20_000} = 1", r"not a readable TOML file \(a line of 40,005 characters, at most 10,000"),
    ],
)
def test_a_wrong_file_names_the_key_the_file_and_what_is_allowed(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(RunConfig, ["--config", str(write(tmp_path, text))])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--agent.topp-k", r"unrecognized arguments: --agent\.topp-k\. Did you mean --agent\.top-k\? `--help` lists the options"),
        ("--no-engine.sedes=1", r"Did you mean --no-engine\.seeds\?"),
        ("--agent.top-k", r"argument --agent\.top-k: expected one argument\. `--help` lists"),
        ("runs/mine", r"unrecognized arguments: runs/mine\. `--help` lists"),
        ("--questions=my.jsonl", r"--questions is a section\. Set one of its options, or --corpus\.questions\. `--help` lists"),
    ],
)
def test_an_argument_that_is_no_option_is_refused_with_the_one_that_was_meant(argument: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"command line: .*{message}"):
        load(RunConfig, [argument])


def test_a_secret_is_refused_where_others_can_read_it_and_is_in_no_text_that_is_made_of_the_options(tmp_path: Path) -> None:
    path = write(tmp_path, '[serve]\napi_key = "planted-secret"\n')
    for arguments, place in ((["--config", str(path)], "run.toml"), (["--serve.api-key", "planted-secret"], "command line")):
        with pytest.raises(ConfigError, match=rf"{place}: serve\.api_key: .*DRAG_RAY_API_KEY.*serve\.api_key_file") as error:
            load(RunConfig, arguments)
        assert "planted-secret" not in str(error.value)
    config = RunConfig(serve=ServeConfig(api_key=SecretStr("planted-secret")))
    assert "planted-secret" not in f"{config!r} {config} {config.model_dump(mode='json')} {config.model_dump_json()}"
    named = {key: annotation for key, annotation in list_options(RunConfig) if re.search(r"(key|secret|token|password)$", key)}
    assert named == {"serve.api_key": SecretStr}


def list_options(config_type: type[BaseModel], section: str = "") -> Iterator[tuple[str, object]]:
    for name, field in config_type.model_fields.items():
        yield f"{section}{name}", field.annotation
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from list_options(field.annotation, f"{section}{name}.")


def test_no_option_takes_an_infinite_number() -> None:
    def list_numbers(config_type: type[BaseModel]) -> Iterator[tuple[type[BaseModel], str]]:
        for name, field in config_type.model_fields.items():
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                yield from list_numbers(field.annotation)
            elif "float" in str(field.annotation):
                yield config_type, name

    numbers = set(list_numbers(RunConfig))
    assert len(numbers) > 30
    for config_type, name in numbers:
        for value in (math.inf, -math.inf, math.nan):
            with pytest.raises(ValidationError):
                config_type.__pydantic_validator__.validate_assignment(config_type.model_construct(), name, value)


def test_a_removed_option_is_known_wherever_its_section_stands() -> None:
    with pytest.raises(ConfigError, match="It is a constant now"):
        build(RunConfig, {"evaluate": {"judge": {"engine": {"image_threads": 8}}}})


@pytest.mark.parametrize(("key", "hint"), OPTIONS.items())
def test_a_removed_option_is_refused_with_its_successor_in_files_and_on_the_command_line(key: str, hint: str) -> None:
    section, _, rest = key.partition(".")
    name, _, field = rest.rpartition(".")
    in_a_list = name == "tool_hosts"
    given = [{"tool": "grep", field: 1}] if in_a_list else {field: 1}
    with pytest.raises(ConfigError) as in_a_file:
        build(RunConfig, {section: {name: given} if name else given})
    named = f"{section}.{name}.0.{field}" if in_a_list else key
    assert f"unknown key {named!r}. {hint}" in str(in_a_file.value)
    with pytest.raises(ConfigError) as on_the_line:
        load(RunConfig, [f"--{key.replace('_', '-')}", "1"])
    assert hint in str(on_the_line.value)


@pytest.mark.parametrize(("command", "hint"), COMMANDS.items())
def test_a_removed_command_names_its_successor(command: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "runs/mine/collect"]) == 2
    assert capsys.readouterr().err == f"drag-ray {command}: is gone. {hint}\n"


ROOT = Path(__file__).parents[3]
PATHS = sorted(ROOT.glob("jobs/configs/*.toml"))
MEASURED = sorted(ROOT.glob("benchmarks/effect/*.toml"))
SMALL = sorted(ROOT.glob("benchmarks/effect/small/*.toml"))
RL = sorted(ROOT.glob("benchmarks/effect/rl/*.toml"))


@pytest.mark.seconds
@pytest.mark.parametrize("path", [*PATHS, *MEASURED, *SMALL, *RL], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_shipped_configuration_is_valid_in_each_of_its_rounds(path: Path) -> None:
    config = load(RunConfig, ["--config", str(path)], [], program="test", description="")
    rounds = [build_round(config, number) for number in range(1, max(config.rounds, 1) + 1)]
    assert all(of_round.finetune.chosen_method.row_format in of_round.format.formats for of_round in rounds)
    check_pipeline(config)
    assert config.reinforce == path.stem.endswith("curriculum")
    methods = [of_round.finetune.method for of_round in rounds]
    if path in RL:
        assert len(methods) > 1
        assert set(methods) == {"grpo"}
    else:
        assert methods == (["sft", "dpo"] if path in MEASURED or path.stem == "recipe" else ["sft"] * len(rounds))


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.stem)
def test_what_is_measured_is_the_recipe(path: Path) -> None:
    recipe, measured = (
        load(RunConfig, ["--config", str(one)], [], program="test", description="").model_dump()
        for one in (ROOT / "jobs" / "configs" / "recipe.toml", path)
    )
    changed = {
        f"{section}.{option}"
        for section in ("agent", "engine", "rollout", "collect", "process", "format", "finetune")
        for option, value in recipe[section].items()
        if value != measured[section][option]
    }
    assert changed <= {"agent.examples", "agent.question_weight", "agent.question_words", "engine.model"}
    assert recipe["curriculum"] == measured["curriculum"]
