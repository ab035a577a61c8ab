"""Presets, the embedded model's name, and what vLLM is asked for."""

import sys

import pytest

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.models import embedded
from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.engine.sampling import PRESETS
from drag_ray.engine.vllm import VllmEngine
from drag_ray.errors import ConfigError, MissingPackageError


def test_presets_have_the_values_of_the_reference_and_one_is_the_models_own_distribution() -> None:
    values = {name: (preset.temperature, preset.top_p, preset.repetition_penalty) for name, preset in PRESETS.items()}
    assert values == {
        "greedy": (0.0, 1.0, 1.0),
        "low_temp": (0.3, 0.9, 1.0),
        "default": (0.7, 0.95, 1.0),
        "high_temp": (1.0, 0.95, 1.0),
        "full": (1.0, 1.0, 1.0),
        "creative": (1.2, 0.95, 1.0),
        "diverse": (0.9, 0.98, 1.1),
    }


def test_a_missing_package_of_the_embedded_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_PACKAGE", "no-such-package")
    with pytest.raises(ConfigError, match=r"no-such-package.*not installed.*drag-ray\[demo"):
        resolve_model("embedded")


def test_an_engine_without_vllm_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blocker:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "vllm":
                raise ModuleNotFoundError("No module named 'vllm'", name="vllm")

    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Blocker(), *sys.meta_path])
    with pytest.raises(MissingPackageError, match=r"'vllm' is not installed.*drag-ray\[cpu\].*drag-ray\[gpu\]"):
        VllmEngine(EngineConfig())
