"""The configurations that are shipped are accepted as they stand."""

from pathlib import Path

import pytest

from drag_ray.config import load
from drag_ray.rounds import build_round
from drag_ray.run_config import RunConfig

FOLDER = Path(__file__).parents[3] / "jobs" / "configs"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_a_shipped_configuration_is_valid_in_each_of_its_rounds(path: Path) -> None:
    config = load(RunConfig, ["--config", str(path)], [], program="test", description="")
    methods = [build_round(config, number).finetune.method for number in range(1, max(config.rounds, 1) + 1)]
    assert methods == {"recipe": ["sft", "dpo", "dpo"]}.get(path.stem, ["sft"])
