"""Commands about what lies on disk, which need no Ray: look at a run, its trajectories and training rows, take them in and out,
send finished stages to an object store and fetch them. A command's docstring is its summary for the user."""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from drag_ray.messages import to_displayable

if TYPE_CHECKING:
    from drag_ray.pipeline.run_config import RunConfig


def _show(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Show trajectories: a list, whole transcripts, or a page for the browser."""
    from drag_ray.transcripts.listing import OUTCOMES, SORT_KEYS, Selection

    parser.add_argument("path", type=Path, help="a run, its collect or evaluate folder, or one parquet file of trajectories")
    outcomes = parser.add_mutually_exclusive_group()
    for outcome, meaning in OUTCOMES.items():
        help_text = f"only those that {meaning}"
        outcomes.add_argument(f"--{outcome}", dest="outcome", action="store_const", const=outcome, help=help_text)
    parser.add_argument("--question", default="", metavar="TEXT", help="only those whose question contains this text")
    parser.add_argument("--id", default="", help="only trajectories with this id, or this question id, in full")
    parser.add_argument("--sort", choices=SORT_KEYS, default="id", help="gain: of the best search over the question")
    parser.add_argument("--limit", type=int, default=50, help="trajectories to show")
    parser.add_argument("--full", action="store_true", help="whole transcripts instead of a list")
    parser.add_argument("--html", type=Path, default=None, help="write the transcripts as a web page")
    options = parser.parse_args(argv)
    from drag_ray.transcripts.show import print_transcripts, write_page

    selection = Selection(options.outcome, options.question, options.id, options.sort, max(1, options.limit))
    if options.html:
        num_shown = write_page(options.path, selection, options.html)
        print(f"{num_shown} transcripts written: {options.html}")
    else:
        width = shutil.get_terminal_size().columns
        print_transcripts(options.path, selection, options.full or bool(options.id), use_color=_wants_color(), width=width)


def _wants_color() -> bool:
    """True on a terminal, unless the user wants none (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _inspect(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Show the trained tokens of a file of training rows, the lengths of its rows and their duplicates."""
    from drag_ray.engine.models.tokens import Mask

    parser.add_argument("file", type=Path, help="a train.jsonl or train.parquet of the format stage")
    parser.add_argument("--samples", type=int, default=5, help="rows to show")
    parser.add_argument("--rows", type=int, default=1000, help="rows whose tokens are counted")
    parser.add_argument("--mask", choices=get_args(Mask), default="assistant", help="tokens of a trained reply that count")
    parser.add_argument("--model", default="embedded", help="model with the tokenizer and chat template to use")
    parser.add_argument("--html", type=Path, default=None, help="also write a web page")
    options = parser.parse_args(argv)
    from drag_ray.corpus.records import require_records
    from drag_ray.format.inspection import format_inspection, inspect_file, load_tokenizer, write_page

    require_records(options.file)  # before the tokenizer, which takes seconds to import
    inspection = inspect_file(options.file, load_tokenizer(options.model), options.mask, options.samples, options.rows)
    print(format_inspection(inspection, use_color=_wants_color()))
    if options.html:
        write_page(inspection, options.html)
        print(f"\nwritten: {options.html}")


def _import(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Import trajectories of another program (DRAG, ATIF), or questions with candidates (V-Retrver), into a run."""
    path, format_name, rest = _take_interchange(parser, "from", argv)
    from drag_ray.api.run import Run
    from drag_ray.process.interchange_format import load_interchange

    interchange = load_interchange(format_name)
    # Who reads whole conversations asks for no agent: an option that counts for nothing is refused.
    sections = ("run_dir", "scope", "name", *(("agent",) if interchange.rebuilds else ()))
    config = _load(parser, "PATH", rest, sections)
    run = Run(config)
    if interchange.convert:
        counts, folder = run.import_questions(path, format_name), config.run_dir / format_name
        num_questions, num_candidates = counts.pop("questions"), counts.pop("candidates")
        print(f"import: {num_questions} questions, {num_candidates} candidates, {_tell_set_aside(counts)}, in {folder}")
        print(f"Go on with --corpus.documents {folder / 'documents'} --corpus.questions {folder / 'questions.jsonl'}")
    else:
        counts = run.import_trajectories(path, format_name)
        num_finished = counts.pop("finished")
        print(f"import: {num_finished} trajectories, {_tell_set_aside(counts)}, in {run.locate('collect')}")


def _tell_set_aside(counts: dict[str, int]) -> str:
    num_set_aside = counts.pop("set_aside")
    kinds = f" ({', '.join(f'{kind} {number}' for kind, number in counts.items())})" if counts else ""
    return f"{num_set_aside} set aside{kinds}"


def _export(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Export the collected trajectories of a run, or with --policy NAME those of its evaluation, for another program."""
    own = _build_partial_parser()
    own.add_argument("--policy", default="")
    chosen, argv = _parse_some(own, argv)
    path, format_name, rest = _take_interchange(parser, "to", argv)
    from drag_ray.api.run import Run

    run = Run(_load(parser, "PATH", rest, ("run_dir", "scope", "name")))
    num_exported = run.export_trajectories(path, format_name, chosen.policy)
    print(f"export: {num_exported} trajectories in {path}")


def _score(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Score a finished evaluation or collection again with another top_k, depth or measures, without a model."""
    parser.add_argument(
        "path", type=Path, help="a run (its evaluation, or else its collection), or its evaluate or collect folder"
    )
    parser.add_argument("--top-k", type=int, default=0, help="pages of a search that count as shown; by default as recorded")
    parser.add_argument("--depth", type=int, default=0, help="depth of the rankings, at most as recorded")
    parser.add_argument("--measures", nargs="+", default=[], metavar="NAME", help="names of the measures to show; by default all")
    parser.add_argument(
        "--judge", type=Path, default=None, metavar="CONFIG", help="judge the answers with evaluate.judge of this TOML file"
    )
    _add_report_options(parser)
    options = parser.parse_args(argv)
    from drag_ray.api.report import score

    prices = {"prompt_price": options.prompt_price, "completion_price": options.completion_price}
    terms = {"top_k": options.top_k, "depth": options.depth, "measures": options.measures, "judge": options.judge}
    print(to_displayable(str(score(options.path, **terms, **prices, report=options.report))), end="")


def _compare(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Compare policies of two finished evaluations on their common questions."""
    parser.add_argument("a", type=Path, metavar="A", help="a run or its evaluate folder, with the policies to compare with")
    parser.add_argument("b", type=Path, metavar="B", help="another one, with the policies to test")
    for side in ("a", "b"):
        help_text = f"policies of {side.upper()}, the most important one first; by default its tuned policy"
        parser.add_argument(f"--{side}-policies", nargs="+", default=[], metavar="NAME", help=help_text)
    _add_report_options(parser)
    options = parser.parse_args(argv)
    from drag_ray.api.report import compare

    prices = {"prompt_price": options.prompt_price, "completion_price": options.completion_price}
    policies = {"a_policies": options.a_policies, "b_policies": options.b_policies}
    print(to_displayable(str(compare(options.a, options.b, **policies, **prices, report=options.report))), end="")


def _add_report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prompt-price", type=float, default=0.0, help="price of a million prompt tokens; by default as recorded"
    )
    help_text = "price of a million completion tokens; endpoints keep their own"
    parser.add_argument("--completion-price", type=float, default=0.0, help=help_text)
    help_text = "folder for a report like that of evaluate (report.html, report.md, comparison.json, results.jsonl)"
    parser.add_argument("--report", type=Path, default=None, metavar="FOLDER", help=help_text)


def _verify(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Verify the files of a run's finished stages, or accept that they were changed."""
    parser.add_argument("path", type=Path, help="a run, or the folder of one of its stages")
    parser.add_argument("--accept", action="store_true", help="accept the current files of the stage as its result")
    options = parser.parse_args(argv)
    from drag_ray.errors import ConfigError
    from drag_ray.stage_runs.damage import accept_changes, list_finished, verify_stages

    if options.accept and list_finished(options.path) != [options.path]:
        raise ConfigError(f"--accept {options.path}: name the folder of the one stage whose files were changed.")
    if options.accept:
        changes = accept_changes(options.path)
        print(to_displayable("\n".join([f"accepted: {change.path}" for change in changes]) or "nothing has changed"))
    verify_stages(options.path)


def _status(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Show the progress of a run: its stages, their figures, and the time of the last write."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run, which may be running")
    parser.add_argument("--json", action="store_true", help="the same for programs")
    options = parser.parse_args(argv)
    from drag_ray.pipeline.status import format_json, format_status, read_status

    stages = read_status(options.run)
    print(format_json(stages) if options.json else to_displayable(format_status(stages)))


def _cost(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Show the cost of a run's stages and of a question of its collection, and estimate the cost of more questions."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run whose stages were started with prices")
    parser.add_argument(
        "--questions", type=_parse_number, default=0, metavar="N", help="estimate the cost of collecting N questions"
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


def _review(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Review the test questions of a run with their pages, in the browser: keep, drop or edit each."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run with written or given questions")
    help_text = "rejected questions that are mixed in unmarked; 20 by default"
    parser.add_argument("--left-out", type=int, default=20, metavar="N", help=help_text)
    parser.add_argument("--port", type=int, default=8010, help="port of this machine for the page; 0 for any free port")
    parser.add_argument("--summary", action="store_true", help="print how often the filters agree with the verdicts, and exit")
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


def _kinds(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Compare kinds and styles of written questions by how much a ranker learns from them, measured on real questions."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run with written questions")
    help_text = (
        "questions of people, as corpus.questions; without it the training questions of the index, or those kept in a review"
    )
    parser.add_argument("--real", type=Path, default=None, metavar="FILE", help=help_text)
    options = parser.parse_args(argv)
    from drag_ray.evaluate.question_mix import format_worth, measure_mix, read_real

    print(to_displayable(format_worth(measure_mix(options.run, read_real(options.run, options.real)))))


def _pairs(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Write pairs of kept and rejected drafts of a run's questions, to train their writer on (finetune.method dpo)."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run written with questions.samples above 1")
    parser.add_argument("file", type=Path, metavar="FILE", help="the file for finetune.data, with the ending .jsonl")
    help_text = "questions of people, as for kinds: drafts of a kind or style from which a ranker learns less count as rejected"
    parser.add_argument("--real", type=Path, default=None, metavar="FILE", help=help_text)
    options = parser.parse_args(argv)
    from drag_ray.questions.pairs import write_pairs

    worse = set[tuple[str, str]]()
    if options.real:
        from drag_ray.evaluate.question_mix import measure_mix, read_real

        worth = measure_mix(options.run, read_real(options.run, options.real))
        worse = {one.part for one in worth.parts if one.is_worse}
    print(f"pairs: {write_pairs(options.run, options.file, worse):,} in {options.file}")
    print(f"Go on with --finetune.method dpo --finetune.data {options.file}")


def _learn(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Turn the users' feedback on pages of a run's endpoint into questions with evidence."""
    config = _load(parser, "RUN", argv, ("run_dir", "learn"))
    from drag_ray.feedback.learned_folder import LEARNED_DIR_NAME, QUESTIONS_NAME, write_lessons

    counts = write_lessons(config.run_dir, config.learn)
    print(f"learn: {', '.join(f'{name} {number:,}' for name, number in counts.items())}")
    if counts["questions"]:
        print(f"Go on with --corpus.questions {config.run_dir / LEARNED_DIR_NAME / QUESTIONS_NAME}")


def _trial(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Show the state of an endpoint's trial; --promote makes the challenger the champion (--force: against the test), --rollback
    undoes it."""
    own = _build_partial_parser()
    action = own.add_mutually_exclusive_group()
    action.add_argument("--promote", action="store_true")
    action.add_argument("--rollback", action="store_true")
    own.add_argument("--force", action="store_true")
    chosen, rest = _parse_some(own, argv)
    from drag_ray.api.run import Run
    from drag_ray.errors import ConfigError

    if chosen.force and not chosen.promote:
        raise ConfigError("--force: goes with --promote.")
    run = Run(_load(parser, "RUN", rest, ("run_dir",)))
    if chosen.promote or chosen.rollback:
        change = run.promote(force=chosen.force) if chosen.promote else run.roll_back()
        print(to_displayable(f"{change.action}: the champion is {change.champion.describe()}, it was {change.before.describe()}"))
    else:
        print(to_displayable(str(run.read_trial())))


def _drift(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Show whether users find less than before, which words the index lacks, and when to train again."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run whose endpoint accepts feedback")
    options = parser.parse_args(argv)
    from drag_ray.feedback.drift import format_drift, read_drift

    print(to_displayable(format_drift(read_drift(options.run), options.run)))


def _merge(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Merge an adapter into its model, as a folder that transformers and vLLM can load."""
    parser.add_argument("adapter", type=Path, help="folder of the adapter, as RUN/finetune/adapter")
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder to write, which must not exist")
    parser.add_argument("--model", default="", metavar="BASE", help="its base model; by default the one that its folder records")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="number format of the weights")
    options = parser.parse_args(argv)
    from drag_ray.engine.models.adapter import read_base_name
    from drag_ray.engine.models.model_folder import resolve_model
    from drag_ray.errors import ConfigError
    from drag_ray.finetune.outputs.publication import merge_adapter

    if options.out.exists():
        raise ConfigError(f"{options.out}: is there already. Name a folder that is not, or remove it.")
    base_dir = resolve_model(options.model or read_base_name(options.adapter))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    merge_adapter(base_dir, options.adapter, options.out, options.dtype)
    print(f"merged: {options.out}")


def _push(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Send the finished stages of a run to an object store, by its URI; skip stages that it already has."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run")
    parser.add_argument("uri", metavar="URI", help="a place for this run only, for example s3://BUCKET/runs/mine")
    options = parser.parse_args(argv)
    from drag_ray.api.run import open_run

    open_run(options.run).push(options.uri)


def _pull(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Fetch finished stages from an object store into a run's folder; skip stages that it already has."""
    parser.add_argument("uri", metavar="URI", help="the place of the pushed run")
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run; it is created if needed")
    help_text = "stages to fetch with their inputs, for example finetune or finetune/dpo; by default all"
    parser.add_argument("--stages", nargs="+", default=[], metavar="STAGE", help=help_text)
    options = parser.parse_args(argv)
    from drag_ray.api.run import open_run

    open_run(options.run).pull(options.uri, options.stages)


def _take_interchange(parser: argparse.ArgumentParser, preposition: str, argv: Sequence[str]) -> tuple[Path, str, list[str]]:
    """The path, which is the first argument, the format (`--from`, `--to`), and the other options."""
    from drag_ray.errors import ConfigError
    from drag_ray.process.interchange import INTERCHANGES

    parser.description = f"{parser.description} --{preposition}: {', '.join(INTERCHANGES)}; {INTERCHANGES[0]} by default."
    own = _build_partial_parser()
    own.add_argument(f"--{preposition}", dest="format_name", choices=INTERCHANGES, default=INTERCHANGES[0])
    options, rest = _parse_some(own, argv)
    if rest and rest[0] in ("-h", "--help"):
        return Path(), options.format_name, rest
    if not rest or rest[0].startswith("-"):
        raise ConfigError(
            f"the first argument is the file or folder: {parser.prog} trajectories.jsonl --run-dir runs/NAME, "
            f"or {parser.prog} FOLDER --{preposition} {'|'.join(INTERCHANGES[1:])} --run-dir runs/NAME"
        )
    return Path(rest[0]), options.format_name, rest[1:]


def _load(parser: argparse.ArgumentParser, argument: str, argv: Sequence[str], sections: Sequence[str]) -> "RunConfig":
    """The options of a run; of a command whose first argument is a RUN that is the folder."""
    from drag_ray.config import load
    from drag_ray.pipeline.run_config import RunConfig

    named = ["--run-dir"] if argument == "RUN" and argv and not argv[0].startswith("-") else []
    program, description = f"{parser.prog} {argument}", parser.description or ""
    return load(RunConfig, [*named, *argv], sections, program=program, description=description)


def _build_partial_parser() -> argparse.ArgumentParser:
    """A parser for some options of a command, whose others are those of a run."""
    return argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)


def _parse_some(parser: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The arguments that a parser knows, and the others."""
    from drag_ray.errors import ConfigError

    try:
        return parser.parse_known_args(list(argv))
    except argparse.ArgumentError as error:
        raise ConfigError(f"command line: {error}") from None


FILE_COMMANDS = {
    command.__name__.removeprefix("_"): command
    for command in (
        *(
            _show,
            _inspect,
            _import,
            _export,
            _score,
            _compare,
            _verify,
            _status,
            _cost,
            _review,
            _kinds,
            _pairs,
            _learn,
            _trial,
            _drift,
        ),
        *(_merge, _push, _pull),
    )
}
"""By their names; each is given a parser with its name and summary, and the arguments."""
