"""The choice of a search before a pipeline trains: the options that it sets are plain ones for every stage that follows."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from drag_ray.config import override
from drag_ray.errors import ConfigError
from drag_ray.pipeline.rounds import check_pipeline
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import list_pipeline, run_stages
from drag_ray.stage_runs.address import Address
from drag_ray.storage.artifacts import Manifest

_logger = logging.getLogger(__name__)

_BEFORE = ("index", "questions", "tune")
"""Stages that a choice is made by."""


def tune_search(config: RunConfig, start_ray: Callable[[], object] = lambda: None) -> tuple[RunConfig, dict[str, Manifest]]:
    """Build the index, have questions written where none are given, and choose the search; what is finished is skipped. Returns
    the options with what was chosen where nothing was set, and the manifests of the stages by their addresses. Raises ConfigError
    where a stage of the pipeline cannot be run with these options; then none has been."""
    from drag_ray.tune.choice_folder import read_options

    check_pipeline(config)
    finished = run_stages([stage for stage in list_pipeline(config) if stage.name in _BEFORE], config, start_ray)
    chosen, said = take_choice(config, read_options(Address("tune").locate(config.run_dir)))
    _logger.info(f"tune: {said}")
    return chosen, finished


def take_choice(config: RunConfig, options: Mapping[str, Any]) -> tuple[RunConfig, str]:
    """The options of the run with those that were chosen, without those that the run sets itself, and a sentence about it.

    Where what the run asks for searches by words alone, as proposals of baselines do, its agent does too.
    """
    config = config.model_copy(update={"tune_search": False})  # the choice does not depend on itself
    taken = _leave_out_set(config, options)
    changed, stays = override(config, taken, "tune"), ""
    try:
        check_pipeline(changed)
    except ConfigError as error:
        taken = {**taken, "agent": {name: value for name, value in taken["agent"].items() if name != "retrieval"}}
        changed, stays = override(config, taken, "tune"), f" agent.retrieval stays {config.agent.retrieval!r}: {error}"
    names = " ".join(f"{name}={value!r}" for name, value in _list_changed(config, changed, taken))
    return changed, f"{f'takes {names}' if names else 'the search stays as it is configured'}.{stays}"


def _leave_out_set(section: BaseModel, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a section has not been given."""
    free: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, Mapping):
            free[name] = _leave_out_set(getattr(section, name), value)
        elif name not in section.model_fields_set:
            free[name] = value
    return free


def _list_changed(before: Any, after: Any, options: Mapping[str, Any], path: str = "") -> list[tuple[str, Any]]:
    """The names and values of options that are others than before."""
    found: list[tuple[str, Any]] = []
    for name, value in options.items():
        old, new = getattr(before, name), getattr(after, name)
        if isinstance(value, Mapping):
            found += _list_changed(old, new, value, f"{path}{name}.")
        elif old != new:
            found.append((path + name, new))
    return found
