"""Rollouts of earlier evaluations: a policy that is the same as it was then is not rolled out again.

Training again leaves the base model as it was; half of an evaluation's rollouts would be made a second time.
"""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from drag_ray import artifacts
from drag_ray.artifacts import PREVIOUS_DIR_NAME, Identity
from drag_ray.baselines.candidates import REWARD_FEATURE
from drag_ray.baselines.gain_model import GainModel
from drag_ray.baselines.registry import list_engine_sections
from drag_ray.evaluate.policies import ModelPolicy

ROLLOUTS_DIR_NAME = "rollouts"
_MARK_NAME = "policy.json"


def fingerprint_policy(model: ModelPolicy, identity: Identity, gain_model: GainModel | None = None) -> str:
    """Stands for all that the rollouts on a policy's engine depend on: of the evaluation's inputs the index and the policy's own
    adapter or prompt; and the model that `best_of` chooses by, if it takes part, with the reward model that this one asks.
    """
    options = identity.config
    engine = options["engine"] | {"model": model.engine.model, "adapter": model.engine.adapter}
    inputs = {name: identity.inputs.get(name) for name in ("index", "engine.adapter", model.source)}
    if gain_model and REWARD_FEATURE in gain_model.features:
        inputs["finetune"] = identity.inputs.get("finetune")
    sections = [options["evaluate"][section] for section in list_engine_sections()]
    agent = options["agent"] | ({"instructions": model.instructions} if model.instructions else {})
    chooser = asdict(gain_model) if gain_model else {}
    return artifacts.compute_fingerprint(options["seed"], agent, engine, *sections, chooser, inputs, identity.code)


def list_earlier(stage_dir: Path) -> list[Path]:
    """Folders of rollouts in evaluations that were set aside, the newest first."""
    marks = (stage_dir.parent / PREVIOUS_DIR_NAME).glob(f"{stage_dir.name}-*/{ROLLOUTS_DIR_NAME}/*/{_MARK_NAME}")
    return [mark.parent for mark in sorted(marks, key=lambda mark: mark.stat().st_mtime, reverse=True)]


def prepare_rollouts(folder: Path, fingerprint: str, earlier: list[Path]) -> Path | None:
    """Make a policy's folder of rollouts, or find it made, and copy what an earlier evaluation has of the same policy into it.

    The mark that says which policy it is comes last, so a folder without it is a copy that was cut short.

    Returns:
        Where the copy is from, if one was made.
    """
    if _read_mark(folder) == fingerprint:
        return None
    if folder.exists():
        shutil.rmtree(folder)
    source = next((path for path in earlier if _read_mark(path) == fingerprint), None)
    if source:
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns(_MARK_NAME))
    artifacts.write_json(folder / _MARK_NAME, {"fingerprint": fingerprint})
    return source


def _read_mark(folder: Path) -> str | None:
    try:
        return json.loads((folder / _MARK_NAME).read_text(encoding="utf-8"))["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
