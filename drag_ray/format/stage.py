"""The format stage: scored turns -> training rows in the columns that TRL reads."""

import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from drag_ray.agent.tasks import ANSWERING, SEARCHING
from drag_ray.cluster.metrics import open_stage_recorder
from drag_ray.cluster.tasks import run_tasks
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.near_duplicates import NO_NEAR_DUPLICATES, read_near_duplicates
from drag_ray.corpus.questions import read_split
from drag_ray.errors import DataError
from drag_ray.format.card import write_card
from drag_ray.format.config import FormatSections
from drag_ray.format.exporter import ExportFile, describe_files
from drag_ray.format.layout import Layout
from drag_ray.format.row_format import load_format
from drag_ray.format.row_parts import FormatJob, RowFiles, check_part, check_questions, format_part, format_questions
from drag_ray.format.rows import OF_PAGES, FormatName
from drag_ray.format.split import SIDES_NAME, TRAIN, VALIDATION, WITHHELD, assign_sides, assign_unlabelled
from drag_ray.format.tables import list_parts, read_table
from drag_ray.process.trajectory_parts import TRAJECTORIES_DIR_NAME
from drag_ray.rollout.folder import IMAGES_DIR_NAME
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage.artifacts import read_manifest, write_parquet, write_text
from drag_ray.types import Evidence, Question

_COLUMNS = ("question_id", "question", "evidence", "group", "task", "tools", "has_images", "hidden")
_QUESTIONS_PER_PART = 500
_logger = logging.getLogger(__name__)

Files = dict[tuple[FormatName, str], RowFiles]


def run(sections: FormatSections, inputs: Inputs, folder: StageFolder) -> dict[str, Any]:
    """Write `<format>/train` and `<format>/validation`, each as `.jsonl` and `.parquet`, and print how many rows.

    The folder is a Hugging Face dataset with a card (README.md); `questions.parquet` says on which side each question is. Every
    Parquet row is read back and checked for leaks; the `.jsonl` holds the same rows. Returns for each format the rows of both
    sides and those set aside, under keys like `sft_query_train`. Raises DataError where the process stage's tables are missing,
    no query is good enough to train towards, there is no page to learn from, or a written row leaks.
    """
    options = sections.format
    process_dir, target_dir = inputs["process"].resolve(), folder.path.resolve()
    parts = list_parts(process_dir)
    survey = survey_parts(process_dir, parts)
    index_dir = inputs.find("index")  # trajectories from elsewhere come without one
    written_dir = inputs.find("questions")
    evaluation = read_split(index_dir, "test", written_dir) if index_dir else []
    near_duplicates = read_near_duplicates(index_dir, survey.questions, written_dir) if index_dir else NO_NEAR_DUPLICATES
    unlabelled = _list_unlabelled(index_dir, survey) if index_dir and options.teacher.model else {}
    sides = assign_sides(survey.questions, evaluation, options, near_duplicates)
    for questions in unlabelled.values():
        sides |= assign_unlabelled(questions, survey.questions, sides, evaluation, options)
    sides_path = target_dir / SIDES_NAME
    write_parquet(sides_path, pl.DataFrame({"question_id": list(sides), "side": list(sides.values())}).to_arrow())
    ImageStore(target_dir / IMAGES_DIR_NAME).take_over(process_dir / IMAGES_DIR_NAME)
    searched = [found.resolve() if found else None for found in (index_dir, inputs.find("embed"))]
    job = FormatJob(process_dir, sides_path, options, survey.layout, *searched)
    files, num_set_aside = _write_rows(job, parts, unlabelled, target_dir, survey.tasks)
    judged: dict[str, int] = {}
    if options.teacher.model:
        from drag_ray.format.teacher import score_rows

        judged = score_rows([file for (name, _), file in files.items() if name in OF_PAGES], options, target_dir)
    num_checked = _check_files(job, files, unlabelled, target_dir)
    _logger.info(f"{'rows':<16}{TRAIN:>9}{VALIDATION:>12}{'set aside':>11}")
    counts: dict[str, Any] = {"questions": len(sides), **judged}
    counts |= {f"{side}_questions": list(sides.values()).count(side) for side in (VALIDATION, WITHHELD)}
    for name in options.formats:
        num_train, num_validation = (files[name, side].num_rows for side in (TRAIN, VALIDATION))
        _logger.info(f"{name:<16}{num_train:>9}{num_validation:>12}{num_set_aside[name]:>11}")
        counts |= {f"{name}_{TRAIN}": num_train, f"{name}_{VALIDATION}": num_validation, f"{name}_set_aside": num_set_aside[name]}
    _logger.info(f"no leak in {num_checked} rows; {len(evaluation)} evaluation questions were looked at")
    write_text(target_dir / "README.md", write_card(options, counts, folder.identity, read_manifest(process_dir)))
    return counts


def _list_unlabelled(index_dir: Path, survey: "Survey") -> dict[str, list[Question]]:
    """The training questions without evidence, in parts by name: a teacher scores pages for them, and no rollout is scored."""
    known = {question.id for question in survey.questions}
    free = [question for question in read_split(index_dir, TRAIN) if not question.evidence and question.id not in known]
    return {
        f"unlabelled-{start}": free[start : start + _QUESTIONS_PER_PART] for start in range(0, len(free), _QUESTIONS_PER_PART)
    }


def _write_rows(
    job: FormatJob, parts: list[str], unlabelled: dict[str, list[Question]], folder: Path, tasks: set[str]
) -> tuple[Files, Counter[str]]:
    files: Files = {
        (name, side): RowFiles(folder / name, side, job.layout.extend(load_format(name).schema))
        for name in job.config.formats
        for side in (TRAIN, VALIDATION)
    }
    exports = [ExportFile(folder / "exports", trainer, *key) for trainer in job.config.exports for key in files]
    totals: Counter[str] = Counter()
    recorder = open_stage_recorder(folder)
    with contextlib.ExitStack() as stack:
        for file in (*files.values(), *exports):
            stack.enter_context(file)
        names = [*parts, *unlabelled]
        all_formatted = chain(
            run_tasks(format_part, [(job, part) for part in parts], folder),
            run_tasks(format_questions, [(job, questions) for questions in unlabelled.values()], folder),
        )
        for num_done, (part, formatted) in enumerate(zip(names, all_formatted, strict=True), start=1):
            for key, rows in formatted.rows.items():
                files[key].write(rows, part)
            for export in exports if part not in unlabelled else ():  # nobody says what a reply to those would be
                export.write(formatted.rows[export.key].table)
            formatted.rows.clear()  # while the next part is waited for, these are not kept
            totals.update(formatted.num_set_aside)
            totals.update(searches=formatted.num_searches, targets=formatted.num_targets)
            recorder.set_progress("parts", num_done, len(names))
        if not totals["targets"] and any(name not in OF_PAGES for name in job.config.formats):
            raise DataError(_describe_no_target(job, totals["searches"], tasks))
        for name in OF_PAGES:
            if name in job.config.formats and not files[name, TRAIN].num_rows:
                raise DataError(_describe_no_page(job, name))
    for trainer in job.config.exports:
        describe_files(folder / "exports", trainer, exports)
    return files, totals


def _describe_no_target(job: FormatJob, num_scored: int, tasks: set[str]) -> str:
    """The message when nothing can be learned, and what helps: only searches can be proposed by something else than a model."""
    missing = f"none of {num_scored} orders gained more than {job.config.min_gain} over the order that its candidates had"
    if tasks & set(ANSWERING):
        missing = f"none of {num_scored} answers has an ANLS* of more than {job.config.min_gain}"
    help_with_searches = ""
    if tasks & set(SEARCHING):
        missing = f"none of {num_scored} searches gained more than {job.config.min_gain} over its question"
        help_with_searches = "take proposals (collect.proposals), "
    return (
        f"{job.process_dir}: {missing}, so there are no training targets. Collect more samples a question, at a higher "
        f"temperature or with collect.prompt_sets, {help_with_searches}have a larger model write them (collect.teacher), or "
        "lower format.min_gain."
    )


def _describe_no_page(job: FormatJob, name: FormatName) -> str:
    """The message when rows of pages cannot be made: what they are made of, and what is missing."""
    missing = "none of the training questions looks for a page (agent.task find_page) and has evidence with text in the index"
    if not job.index_dir:
        missing = "these trajectories came without the index that they were searched in"
    return f"{job.process_dir}: no rows for format.formats {name}: {missing}. Collect with this project, or leave it out."


def _check_files(job: FormatJob, files: Files, unlabelled: dict[str, list[Question]], folder: Path) -> int:
    """Read every written row back and check it for leaks; returns how many there were."""
    places: dict[str, dict[Path, range]] = defaultdict(dict)
    for file in files.values():
        for part, rows in file.parts.items():
            places[part][file.parquet_path] = rows
    scored = [(job, part, rows) for part, rows in places.items() if part not in unlabelled]
    found = [(job, questions, places[part]) for part, questions in unlabelled.items() if part in places]
    return sum(run_tasks(check_part, scored, folder)) + sum(run_tasks(check_questions, found, folder))


@dataclass(frozen=True)
class Survey:
    """The questions of a set of trajectories, what was asked, and the layout of its rows."""

    questions: list[Question]
    tasks: set[str]
    layout: Layout


def survey_parts(process_dir: Path, parts: Sequence[str]) -> Survey:
    """Read what is needed of each part in turn."""
    questions: list[Question] = []
    tasks: set[str] = set()
    layout = Layout()
    for name in parts:
        table = read_table(process_dir / TRAJECTORIES_DIR_NAME / name, list(_COLUMNS))
        tasks.update(table["task"])
        layout = Layout(*(one or other for one, other in zip(astuple(layout), astuple(Layout.of(table)), strict=True)))
        for row in table.unique("question_id", keep="first", maintain_order=True).iter_rows(named=True):
            evidence = tuple(Evidence(**page) for page in row["evidence"])
            questions.append(Question(row["question_id"], row["question"], evidence, group=row["group"]))
    return Survey(questions, tasks, layout)
