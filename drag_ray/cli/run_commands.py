"""Commands about a run: how far it is, what it cost, and its stages on their way to an object store and back."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from drag_ray.messages import to_displayable

RUN_COMMANDS = {
    "status": "Tell how far a run is: its stages, their figures, and when something was last written.",
    "cost": "Tell what the stages of a run have cost, a question of a collection, and what more of them would cost.",
    "review": "Look at the test questions of a run beside their pages, on a page for the browser, and say which are kept.",
    "push": "Send the finished stages of a run to an object store, by its URI; what is there is not sent again.",
    "pull": "Fetch finished stages from an object store into a run's folder; what is there is not fetched again.",
}


def run_command_of_a_run(command: str, argv: Sequence[str]) -> None:
    """Run one of `RUN_COMMANDS`.

    Raises:
        DragRayError: the folder is no run, the URI is none, the store refuses, or a stage is not what was written.
    """
    {"status": _status, "cost": _cost, "review": _review, "push": _push, "pull": _pull}[command](argv)


def _status(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="drag-ray status", description=RUN_COMMANDS["status"])
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run, which may be at work")
    parser.add_argument("--json", action="store_true", help="the same for programs")
    options = parser.parse_args(argv)
    from drag_ray.pipeline.status import format_json, format_status, read_status

    stages = read_status(options.run)
    print(format_json(stages) if options.json else to_displayable(format_status(stages)))


def _cost(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="drag-ray cost", description=RUN_COMMANDS["cost"])
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run whose stages were started with prices")
    parser.add_argument(
        "--questions", type=_parse_number, default=0, metavar="N", help="what a collection of so many would cost, at its rate"
    )
    parser.add_argument("--json", action="store_true", help="the same for programs")
    options = parser.parse_args(argv)
    from drag_ray.pipeline.cost import format_costs, format_json, read_costs

    costs = read_costs(options.run)
    print(format_json(costs, options.questions) if options.json else to_displayable(format_costs(costs, options.questions)))


def _parse_number(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} questions; expected 1 or more")
    return number


def _review(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="drag-ray review", description=RUN_COMMANDS["review"])
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run whose questions are written, or given")
    help_text = "questions that filters have left out, to look at among the others without knowing it; 20 where nothing is said"
    parser.add_argument("--left-out", type=int, default=20, metavar="N", help=help_text)
    parser.add_argument("--port", type=int, default=8010, help="of this machine, for the page; 0: any that is free")
    parser.add_argument("--summary", action="store_true", help="print how far the filters agree with the verdicts, and end")
    options = parser.parse_args(argv)
    from drag_ray.questions.review import list_items
    from drag_ray.storage.artifacts import read_manifest, require_manifest

    index_dir, written_dir = options.run / "index", options.run / "questions"
    require_manifest(index_dir, "python jobs/index.py")
    items = list_items(index_dir, written_dir if read_manifest(written_dir) else None, max(0, options.left_out))
    from drag_ray.serve.review import Review, format_agreement, serve_review

    review = Review(options.run, items)
    if not options.summary:
        serve_review(review, options.port)
    print(format_agreement(review.items, review.verdicts))


def _push(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="drag-ray push", description=RUN_COMMANDS["push"])
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run")
    parser.add_argument("uri", metavar="URI", help="a place for this run alone, as s3://BUCKET/runs/mine")
    options = parser.parse_args(argv)
    from drag_ray.api.run import open_run

    open_run(options.run).push(options.uri)


def _pull(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="drag-ray pull", description=RUN_COMMANDS["pull"])
    parser.add_argument("uri", metavar="URI", help="where the run was pushed to")
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run, which need not be there")
    help_text = "stages to fetch with what they were made from, as finetune or finetune/dpo; all without"
    parser.add_argument("--stages", nargs="+", default=[], metavar="STAGE", help=help_text)
    options = parser.parse_args(argv)
    from drag_ray.api.run import open_run

    open_run(options.run).pull(options.uri, options.stages)
