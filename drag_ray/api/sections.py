"""The options that each command of a run takes."""

from drag_ray.errors import ConfigError
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.stages import SERVE, STAGES, Stage

PIPELINE = "pipeline"
OF_THE_RUN = ("run_dir", "cluster", "storage")
"""Options of the run itself, which no single call changes."""
_OF_EVERY_STAGE = (*OF_THE_RUN, "scope", "reads", "verify")


def list_sections(command: str) -> tuple[str, ...]:
    """The options and sections that a stage, or the pipeline, depends on, with those of the run itself.

    Raises:
        ConfigError: there is no such stage.
    """
    if command == PIPELINE:
        return tuple(name for name in RunConfig.model_fields if name != "name")
    if command == SERVE.name:
        return (*_OF_EVERY_STAGE, *SERVE.sections.list_names())
    return (*_OF_EVERY_STAGE, "name", "cost", *find_stage(command).sections.list_names())


def find_stage(name: str) -> Stage:
    """The stage of this name.

    Raises:
        ConfigError: there is none.
    """
    if name not in STAGES:
        raise ConfigError(f"no stage {name!r}, expected one of {', '.join(STAGES)}.")
    return STAGES[name]
