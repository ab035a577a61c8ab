"""The command line: `drag-ray STAGE ...`, and the same code behind `python jobs/STAGE.py ...`."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache

from drag_ray.corpus.text import to_displayable
from drag_ray.endpoint_commands import ENDPOINT_COMMANDS, run_endpoint_command
from drag_ray.errors import ConfigError, DragRayError
from drag_ray.file_commands import FILE_COMMANDS, run_file_command
from drag_ray.storage_commands import STORAGE_COMMANDS, run_storage_command

PIPELINE = "pipeline"
_PIPELINE_SUMMARY = "Run all stages in order; skip what is unchanged, go on with what was interrupted."
_ALWAYS = ("run_dir", "scope", "reads", "verify", "cluster", "storage")
_INTERRUPTED = 130
_FAILED = 1


def main(argv: Sequence[str] | None = None) -> int:
    """`drag-ray STAGE [options]`. Returns the exit status."""
    from drag_ray.stages import SERVE, STAGES

    arguments = list(sys.argv[1:] if argv is None else argv)
    stages = {name: stage.summary for name, stage in STAGES.items()}
    commands = (
        stages | {SERVE.name: SERVE.summary, PIPELINE: _PIPELINE_SUMMARY} | ENDPOINT_COMMANDS | FILE_COMMANDS | STORAGE_COMMANDS
    )
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: drag-ray COMMAND [options]\n\ncommands:")
        print("\n".join(f"  {name:<10}{summary}" for name, summary in commands.items()))
        print("\n`drag-ray COMMAND --help` lists a command's options.")
        return 0
    if arguments[0] not in commands:
        print(f"drag-ray: unknown command {arguments[0]!r}. Known commands: {', '.join(commands)}.", file=sys.stderr)
        return 2
    return run_command(arguments[0], arguments[1:])


def run_command(command: str, argv: Sequence[str]) -> int:
    """Run one command with its arguments and turn what goes wrong into a message and an exit status."""
    try:
        if command in ENDPOINT_COMMANDS:
            run_endpoint_command(command, argv)
        elif command in FILE_COMMANDS:
            run_file_command(command, argv)
        elif command in STORAGE_COMMANDS:
            run_storage_command(command, argv)
        else:
            _run(command, argv)
    except ConfigError as error:
        print(to_displayable(f"drag-ray {command}: {error}"), file=sys.stderr)
        return 2
    except DragRayError as error:
        print(to_displayable(f"drag-ray {command}: {type(error).__name__}: {error}"), file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        print(f"drag-ray {command}: stopped. What is finished is kept; the same command goes on from here.", file=sys.stderr)
        return _INTERRUPTED
    return 0


def _run(command: str, argv: Sequence[str]) -> None:
    from drag_ray.config import load
    from drag_ray.pipeline import list_pipeline, open_inputs, pull_inputs, run_stages
    from drag_ray.run_config import RunConfig
    from drag_ray.serve.config import ServeSections
    from drag_ray.stages import SERVE, STAGES

    if command == PIPELINE:
        sections, summary = [name for name in RunConfig.model_fields if name != "name"], _PIPELINE_SUMMARY
    elif command == SERVE.name:
        sections, summary = (*_ALWAYS, *SERVE.sections.list_names()), SERVE.summary
    else:
        stage = STAGES[command]
        sections, summary = (*_ALWAYS, "name", *stage.sections.list_names()), stage.summary
    config = load(RunConfig, argv, sections, program=f"drag-ray {command}", description=summary)
    from drag_ray.cluster import connect, is_submitted_job

    if is_submitted_job() and not config.run_dir.is_absolute():
        raise ConfigError(
            f"run_dir {str(config.run_dir)!r}: a submitted job works in a temporary copy of the working directory, "
            "so give --run-dir as an absolute path on storage that all nodes share."
        )
    with ExitStack() as stack:

        @cache
        def start_ray() -> None:
            stack.enter_context(connect(config.cluster))
            if command == PIPELINE and config.rollout.keep_engines:
                from drag_ray.rollout.kept_engines import keep_engines

                stack.enter_context(keep_engines())

        if command == SERVE.name:
            from drag_ray.serve import stage as serve_stage

            pull_inputs(SERVE, config)
            serve_stage.run(config.take(ServeSections), open_inputs(SERVE, config), start_ray=start_ray)
        elif command == PIPELINE and config.rounds:
            from drag_ray.rounds import run_rounds

            run_rounds(config, start_ray)
        else:
            run_stages(list_pipeline(config) if command == PIPELINE else [STAGES[command]], config, start_ray)


if __name__ == "__main__":
    sys.exit(main())
