"""What replies are chosen by, made by hand, and an evaluation that has it."""

from pathlib import Path

from drag_ray import artifacts
from drag_ray.artifacts import Identity
from drag_ray.baselines.candidates import CandidateReader
from drag_ray.baselines.gain_model import GainModel, write_gain_model
from drag_ray.evaluate.chooser import CHOOSER_DIR_NAME
from drag_ray.evaluate.context import ReportContext
from drag_ray.evaluate.outcome import COMPARISON_NAME
from drag_ray.stage_folder import StageFolder


def build_gain_model(feature: str, weight: float, *, has_rewards: bool = False) -> GainModel:
    """Expects a gain of `weight` times a feature."""
    names = CandidateReader.list_features(has_rewards=has_rewards)
    weights = [weight if name == feature else 0.0 for name in names] + [0.0] * (len(names) * (len(names) + 1) // 2)
    return GainModel(names, (0.0,) * len(names), (1.0,) * len(names), tuple(weights))


MANY_WORDS = build_gain_model("num_written", 0.1)
"""Expects the more, the more words are written."""


def finish_chooser(folder: Path, model: GainModel | None) -> Path:
    """A finished evaluation, with what it has fitted to choose by; None where it has fitted nothing."""
    with StageFolder(folder, Identity("evaluate", {}, {})) as stage:
        context = ReportContext("or", "english", "greedy", (0,))
        artifacts.write_json(stage.path / COMPARISON_NAME, {"context": context.to_dict()})
        if model:
            (stage.path / CHOOSER_DIR_NAME).mkdir()
            write_gain_model(stage.path / CHOOSER_DIR_NAME, model)
        stage.finish({})
    return folder
