"""Rollouts of earlier evaluations: a policy that is the same as it was then is not rolled out again.

Training again leaves the base model as it was; half of an evaluation's rollouts would be made a second time.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from drag_ray.baselines.registry import list_engine_sections
from drag_ray.evaluate.policies.policy import ModelPolicy
from drag_ray.rollout import journal
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import PREVIOUS_DIR_NAME, USER_CODE, Identity

ROLLOUTS_DIR_NAME = "rollouts"
_MARK_NAME = "policies.json"


def fingerprint_policy(model: ModelPolicy, identity: Identity) -> str:
    """Stands for all that the rollouts on a policy's engine depend on: of the evaluation's inputs the index, its vectors where
    the agent searches by them, and the policy's own adapter.
    """
    options = identity.config
    own = {"model": model.engine.model, "adapter": model.engine.adapter}
    engine = model.engine.model_dump(mode="json") if model.is_other else options["engine"] | own
    searched = ("index",) if options["agent"]["retrieval"] == "bm25" or "embed" not in identity.inputs else ("index", "embed")
    inputs = {name: identity.inputs.get(name) for name in (*searched, "engine.adapter", USER_CODE, model.source)}
    sections = [options["evaluate"][section] for section in (*list_engine_sections(), "degradation")]
    return artifacts.compute_fingerprint(options["seed"], options["agent"], engine, *sections, inputs, identity.version)


def list_earlier(stage_dir: Path) -> list[Path]:
    """Folders of an engine's rollouts in evaluations that were set aside, the newest first."""
    marks = (stage_dir.parent / PREVIOUS_DIR_NAME).glob(f"{stage_dir.name}-*/{ROLLOUTS_DIR_NAME}/*/{_MARK_NAME}")
    return [mark.parent for mark in sorted(marks, key=lambda mark: mark.stat().st_mtime, reverse=True)]


def prepare_rollouts(folder: Path, fingerprints: Mapping[str, str], earlier: Sequence[Path]) -> dict[str, Path]:
    """Make the folder of an engine's rollouts, or find it made; what earlier evaluations have of its policies is copied into it.

    The mark that says which policies they are comes last, so a folder without it is a copy that was cut short.

    Returns:
        Where the rollouts of a policy are from, if some were copied.
    """
    if artifacts.read_object(folder / _MARK_NAME) == fingerprints:
        return {}
    if folder.exists():
        shutil.rmtree(folder)
    marks = {path: artifacts.read_object(path / _MARK_NAME) for path in earlier}
    sources: dict[str, Path] = {}
    for name, fingerprint in fingerprints.items():
        source = next((path for path, mark in marks.items() if mark.get(name) == fingerprint), None)
        if source:
            journal.copy_policy(source, folder, name)
            sources[name] = source
    artifacts.write_json(folder / _MARK_NAME, fingerprints)
    return sources
