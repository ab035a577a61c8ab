"""The endpoint for Ray Serve's configuration files: `import_path: drag_ray.pipeline.serve_app:build` (KubeRay's RayService)."""

import shlex
from collections.abc import Mapping
from typing import Any


def build(arguments: Mapping[str, str]) -> Any:
    """The application of a run, which Ray Serve runs and scales. Raises DragRayError: as `drag-ray serve`. `arguments`:
    `options`, as of `drag-ray serve`, in one line. Host and port are those of Ray Serve's `http_options`; one that listens beyond
    its machine needs `--serve.host 0.0.0.0` and a key."""
    from drag_ray.config import load
    from drag_ray.errors import ConfigError
    from drag_ray.pipeline.run_config import RunConfig
    from drag_ray.pipeline.runner import open_inputs, pull_inputs
    from drag_ray.pipeline.stages import SERVE
    from drag_ray.serve import stage
    from drag_ray.serve.config import ServeSections

    if set(arguments) != {"options"}:
        raise ConfigError(
            f"args: got {', '.join(sorted(arguments)) or 'none'}, expected options: --run-dir /shared/runs/mine ..."
        )
    sections = ("run_dir", "scope", "reads", "storage", *SERVE.sections.list_names())
    config = load(RunConfig, shlex.split(arguments["options"]), sections, program="drag-ray serve")
    pull_inputs(SERVE, config)
    return stage.build(config.take(ServeSections), open_inputs(SERVE, config))
