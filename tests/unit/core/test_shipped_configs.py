"""The configurations that are shipped are accepted as they stand."""

from pathlib import Path

import pytest

from drag_ray.config import load
from drag_ray.pipeline.rounds import build_round
from drag_ray.pipeline.run_config import RunConfig

ROOT = Path(__file__).parents[3]
PATHS = sorted(ROOT.glob("jobs/configs/*.toml"))
MEASURED = sorted(ROOT.glob("benchmarks/effect/*.toml"))
SMALL = sorted(ROOT.glob("benchmarks/effect/small/*.toml"))
RL = sorted(ROOT.glob("benchmarks/effect/rl/*.toml"))


@pytest.mark.parametrize("path", [*PATHS, *MEASURED, *SMALL, *RL], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_shipped_configuration_is_valid_in_each_of_its_rounds(path: Path) -> None:
    config = load(RunConfig, ["--config", str(path)], [], program="test", description="")
    rounds = [build_round(config, number) for number in range(1, max(config.rounds, 1) + 1)]
    assert all(of_round.finetune.chosen_method.row_format in of_round.format.formats for of_round in rounds)
    methods = [of_round.finetune.method for of_round in rounds]
    if path in RL:
        assert len(methods) > 1
        assert set(methods) == {"grpo"}
    else:
        assert methods == (["sft", "dpo"] if path in MEASURED or path.stem == "recipe" else ["sft"])


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
