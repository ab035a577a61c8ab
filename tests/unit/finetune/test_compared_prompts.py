"""When a training refuses prompts that the engine had otherwise: where the model that is trained has collected them."""

from dataclasses import replace
from pathlib import Path

import pytest

from drag_ray.engine.config import EngineConfig
from drag_ray.finetune.config import FinetuneConfig, FinetuneSections
from drag_ray.finetune.stage import compares_prompts
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage.artifacts import Manifest, write_manifest

OF_ENGINE = {"engine": {"model": "embedded"}}


def write_lineage(run_dir: Path, config: dict[str, object]) -> Inputs:
    """The folders of a format stage and of the collection that it was made from, with these options."""
    collected = Manifest("collect", "1", origin={"config": config})
    formatted = Manifest(
        "format", "2", origin={"reads": {"collect": "collect"}, "inputs": {"collect": collected.outcome_fingerprint}}
    )
    for manifest in (collected, formatted):
        (run_dir / manifest.stage).mkdir()
        write_manifest(run_dir / manifest.stage, manifest)
    return Inputs({"format": run_dir / "format"}, run_dir)


@pytest.mark.parametrize(
    ("config", "model", "compares"),
    [(OF_ENGINE, "embedded", True), (OF_ENGINE, "student", False), ({}, "embedded", False)],
    ids=["its own", "a teacher's", "from elsewhere"],
)
def test_prompts_are_compared_where_the_model_itself_collected(
    tmp_path: Path, config: dict[str, object], model: str, compares: bool
) -> None:
    inputs = write_lineage(tmp_path, config)
    sections = FinetuneSections(EngineConfig(model=model), FinetuneConfig())
    assert compares_prompts(sections, inputs) is compares
    assert not compares_prompts(replace(sections, finetune=FinetuneConfig(compare_prompts=False)), inputs)


def test_rows_without_a_collection_are_not_compared(tmp_path: Path) -> None:
    assert not compares_prompts(FinetuneSections(EngineConfig(), FinetuneConfig()), Inputs({"format": tmp_path}, tmp_path))
