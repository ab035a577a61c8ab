"""What the agents of an endpoint look at in its index is known before an engine starts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from small_index import finish_index

from drag_ray.errors import ConfigError
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.stages import SERVE
from drag_ray.search import vectors
from drag_ray.serve import settings
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.types import Page


@dataclass
class _Vectors:
    """Stands for vectors that are there."""

    folders: tuple[Path, ...]

    def __call__(self, folder: Path) -> bool:
        return folder in self.folders


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inputs:
    monkeypatch.setattr(settings, "check_functions_shown", lambda *_: None)  # the embedded model's template shows none
    finish_index(tmp_path, [Page("a.pdf", 1, 1, "rotor")], [])
    return Inputs({"index": tmp_path / "index", "finetune": None})


def build(inputs: Inputs, agent: dict[str, object], serve: dict[str, object]) -> settings.AppSettings:
    config = RunConfig.model_validate({"agent": {"max_iterations": 2, **agent}, "serve": serve})
    sections: Any = config.take(SERVE.sections)
    return settings.build_app_settings(sections, inputs, "")


@pytest.mark.parametrize(
    ("agent", "serve", "folder", "problem"),
    [
        ({"protocol": "tools", "tools": ["search", "image_search"]}, {}, vectors.IMAGES_DIR_NAME, "no vectors of the pictures"),
        ({"retrieval": "hybrid"}, {}, vectors.DIR_NAME, "agent.retrieval 'hybrid': .* has no vectors of its pages"),
        ({}, {"retrieval": "dense"}, vectors.DIR_NAME, "serve.retrieval 'dense': .* has no vectors of its pages"),
    ],
)
def test_vectors_are_looked_for_where_the_index_stage_leaves_them(
    inputs: Inputs,
    monkeypatch: pytest.MonkeyPatch,
    agent: dict[str, object],
    serve: dict[str, object],
    folder: str,
    problem: str,
) -> None:
    with pytest.raises(ConfigError, match=problem):
        build(inputs, agent, serve)
    index_dir = inputs["index"].resolve()
    present = _Vectors((index_dir / folder,))
    monkeypatch.setattr("drag_ray.tools.image_search.has_vectors", present)
    monkeypatch.setattr(vectors, "has_vectors", present)
    assert build(inputs, agent, serve).index_dir == str(index_dir / "search_index")
