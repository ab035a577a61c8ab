"""The command line: `drag-ray STAGE ...`, and the same code behind `python jobs/STAGE.py ...`."""

import argparse
import os
import sys
from collections.abc import Sequence

from drag_ray.cli.endpoint_commands import ENDPOINT_COMMANDS
from drag_ray.cli.file_commands import FILE_COMMANDS
from drag_ray.cluster.interruption import INTERRUPTED, ending_on_interrupt
from drag_ray.errors import ConfigError, DragRayError, MissingPackageError
from drag_ray.extras import explain_missing
from drag_ray.messages import show_messages, to_displayable
from drag_ray.removed import COMMANDS
from drag_ray.storage.file_access import explain_memory

_COMMANDS = ENDPOINT_COMMANDS | FILE_COMMANDS
_SUMMARIES = {name: " ".join((command.__doc__ or "").split()) for name, command in _COMMANDS.items()}
_PIPELINE_SUMMARY = "Run all stages in order; skip unchanged stages, resume interrupted ones."
_FAILED = 1
_SERVING = ("serve", "mcp", "review")


def main(argv: Sequence[str] | None = None) -> int:
    """`drag-ray STAGE [options]`. Returns the exit status."""
    from drag_ray.api.run_folder import PIPELINE
    from drag_ray.pipeline.stages import SERVE, STAGES

    arguments = list(sys.argv[1:] if argv is None else argv)
    stages = {name: stage.summary for name, stage in STAGES.items()}
    commands = stages | {SERVE.name: SERVE.summary, PIPELINE: _PIPELINE_SUMMARY} | _SUMMARIES
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: drag-ray COMMAND [options]\n\ncommands:")
        print("\n".join(f"  {name:<10}{summary}" for name, summary in commands.items()))
        print("\n`drag-ray COMMAND --help` lists a command's options.")
        return 0
    if arguments[0] in COMMANDS:
        print(f"drag-ray {arguments[0]}: is gone. {COMMANDS[arguments[0]]}", file=sys.stderr)
        return 2
    if arguments[0] not in commands:
        print(f"drag-ray: unknown command {arguments[0]!r}. Known commands: {', '.join(commands)}.", file=sys.stderr)
        return 2
    return run_command(arguments[0], arguments[1:])


def run_command(command: str, argv: Sequence[str]) -> int:
    """Run one command with its arguments and turn what goes wrong into a message and an exit status."""
    show_messages()
    stopped = f"drag-ray {command}: stopped. Finished work is kept; the same command continues."
    try:
        with ending_on_interrupt(stopped), explain_missing("serve" if command in _SERVING else "train"):
            _dispatch(command, argv)
    except (ConfigError, MissingPackageError) as error:
        print(to_displayable(f"drag-ray {command}: {error}"), file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else _FAILED
    except DragRayError as error:
        print(to_displayable(f"drag-ray {command}: {type(error).__name__}: {error}"), file=sys.stderr)
        return _FAILED
    except MemoryError as error:
        print(f"drag-ray {command}: {explain_memory(error)}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        print(stopped, file=sys.stderr)
        return INTERRUPTED
    return 0


def _dispatch(command: str, argv: Sequence[str]) -> None:
    if command not in _COMMANDS:
        _run(command, argv)
        return
    try:
        _COMMANDS[command](argparse.ArgumentParser(prog=f"drag-ray {command}", description=_SUMMARIES[command]), argv)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, as `head`, has seen enough; what is still held goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(command: str, argv: Sequence[str]) -> None:
    from drag_ray.api.run import Run
    from drag_ray.api.run_folder import PIPELINE, list_sections
    from drag_ray.config import load
    from drag_ray.pipeline.run_config import RunConfig
    from drag_ray.pipeline.stages import SERVE, STAGES

    summary = _PIPELINE_SUMMARY if command == PIPELINE else (STAGES | {SERVE.name: SERVE})[command].summary
    config = load(RunConfig, argv, list_sections(command), program=f"drag-ray {command}", description=summary)
    from drag_ray.cluster.connection import is_submitted_job

    if is_submitted_job() and not config.run_dir.is_absolute():
        raise ConfigError(
            f"run_dir {str(config.run_dir)!r}: a submitted job works in a temporary copy of the working directory, "
            "so give --run-dir as an absolute path on storage that all nodes share."
        )
    with Run(config) as run:
        if command == SERVE.name:
            run.serve()
        elif command == PIPELINE:
            run.pipeline()
        else:
            run.run_stage(command)


if __name__ == "__main__":
    sys.exit(main())
