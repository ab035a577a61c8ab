"""Outputs of an evaluation: the report in three forms, and all that is needed to compare and to score again without a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from drag_ray import schemas
from drag_ray.errors import DataError
from drag_ray.evaluate.comparison import Comparison
from drag_ray.evaluate.effort import Prices
from drag_ray.evaluate.question_result import QuestionResult, to_line, to_result
from drag_ray.evaluate.report.context import ReportContext, read_context
from drag_ray.evaluate.report.examples import choose_examples
from drag_ray.evaluate.report.formatting import write_verdict
from drag_ray.evaluate.report.parts import format_markdown, write_report
from drag_ray.rollout.judgements import JUDGE_DIR_NAME, Judgements, read_judgements
from drag_ray.stage_runs.damage import refuse_damage
from drag_ray.storage import artifacts
from drag_ray.storage.file_access import reading
from drag_ray.storage.json_text import parse_json
from drag_ray.transcripts.thumbnails import ThumbnailStore
from drag_ray.types import Question, Trajectory

REPORT_NAME = "report.html"
MARKDOWN_NAME = "report.md"
COMPARISON_NAME = "comparison.json"
RESULTS_NAME = "results.jsonl"
QUESTIONS_NAME = "questions.parquet"
TRAJECTORIES_PATH = Path("trajectories") / "scored.parquet"


@dataclass(frozen=True)
class Outcome:
    """A finished evaluation: its questions, the trajectories of each policy as they were scored, and what was recorded of them.

    `comparison` is the content of `comparison.json`.
    """

    path: Path
    questions: Sequence[Question]
    trajectories: Mapping[str, Sequence[Trajectory]]
    comparison: Mapping[str, Any]

    @property
    def context(self) -> ReportContext:
        """The context of the numbers, without the options and the training curve."""
        return read_context(self.comparison["context"])

    def read_judgements(self) -> Judgements | None:
        """The judgements of its answers; None where they were not judged."""
        folder = self.path / JUDGE_DIR_NAME
        return read_judgements(folder) if folder.is_dir() else None

    @property
    def baseline(self) -> str:
        """The policy that the others were compared with."""
        return self.comparison["baseline"]

    @property
    def subject(self) -> str:
        """The policy whose gain was in question."""
        return self.comparison["subject"]

    @property
    def prices(self) -> Prices:
        """The prices that costs were reckoned at, those of endpoints among them; none in one of an earlier version."""
        recorded = self.comparison.get("prices", {})
        own = {policy: Prices(terms["prompt"], terms["completion"]) for policy, terms in recorded.get("own", {}).items()}
        return Prices(recorded.get("prompt", 0.0), recorded.get("completion", 0.0), own)

    def list_values(self) -> dict[str, dict[str, float | None]]:
        """The value that was recorded of each measure for each policy."""
        return {
            row["name"]: {policy: metric["value"] for policy, metric in row["metrics"].items()} for row in self.comparison["rows"]
        }


def write_rollouts(folder: Path, questions: Sequence[Question], trajectories: Mapping[str, Sequence[Trajectory]]) -> None:
    """Write what was scored: the questions, and the trajectories of each policy with its name in the column `policy`.

    Not all of them are in `rollouts/`: some baselines need no engine, and a weight of the question that was found for a policy
    changes what its searches find.
    """
    artifacts.write_parquet(folder / QUESTIONS_NAME, schemas.to_table(questions, schemas.QUESTIONS))
    tables: list[pa.Table] = []
    for policy, rollouts in trajectories.items():
        named = [replace(rollout, provenance=replace(rollout.provenance, policy=policy)) for rollout in rollouts]
        tables.append(schemas.to_table(named, schemas.TRAJECTORIES))
    artifacts.write_parquet(folder / TRAJECTORIES_PATH, pa.concat_tables(tables))


def write_comparison(
    folder: Path,
    comparison: Comparison,
    results: Mapping[str, Sequence[QuestionResult]],
    trajectories: Mapping[str, Sequence[Trajectory]],
    context: ReportContext,
    thumbnails: ThumbnailStore,
) -> None:
    """Write the report as a page, as Markdown and as JSON, and the result of each question. Raises ArtifactError: a file cannot
    be written."""
    rows = [{"policy": name, **to_line(result)} for name, policy_results in results.items() for result in policy_results]
    artifacts.write_jsonl(folder / RESULTS_NAME, rows)
    said = {"verdict": write_verdict(comparison), "context": context.to_dict()}
    artifacts.write_json(folder / COMPARISON_NAME, {**comparison.to_dict(), **said})
    artifacts.write_text(folder / MARKDOWN_NAME, format_markdown(comparison, context))
    sides = (comparison.baseline, comparison.subject)
    examples = choose_examples(trajectories, results, comparison.criterion, *sides)
    write_report(folder / REPORT_NAME, comparison, examples, context, thumbnails)


def find_evaluation(path: Path) -> Path | None:
    """The folder of an evaluation that was compared: this one, or that of this run; None if there is none."""
    folders = (path, path / "evaluate")
    return next((folder for folder in folders if (folder / COMPARISON_NAME).is_file()), None)


def read_question_weights(path: Path) -> dict[str, float]:
    """The weights of the question that an evaluation, in its folder or that of its run, found by policy. Errors are those of
    `open_evaluation`."""
    context = read_context(read_comparison(path)["context"])
    return {policy: found.weight for policy, found in context.question_weights.items()}


def read_index_fingerprint(path: Path) -> str:
    """The fingerprint of the search index of an evaluation; empty in one of an earlier version. Errors are those of
    `open_evaluation`."""
    return read_context(read_comparison(path)["context"]).fingerprints.get("search index", "")


def open_evaluation(path: Path) -> Path:
    """The folder of a finished evaluation. Raises ArtifactError: it has not finished; DamageError: it is not what was written."""
    stage_dir = find_evaluation(path) or path
    artifacts.require_manifest(stage_dir, "python jobs/evaluate.py")
    refuse_damage(stage_dir, whole=True)
    return stage_dir


def read_comparison(path: Path) -> dict[str, Any]:
    """The content of `comparison.json`. Errors are those of `open_evaluation`."""
    return _read_comparison(open_evaluation(path))


def _read_comparison(stage_dir: Path) -> dict[str, Any]:
    path = stage_dir / COMPARISON_NAME
    with reading(path):
        return parse_json(path.read_bytes())


def read_results(path: Path) -> dict[str, list[QuestionResult]]:
    """The result of each question for each policy of an evaluation, in its folder or that of its run, as they were scored.
    Errors are those of `open_evaluation`."""
    results: dict[str, list[QuestionResult]] = {}
    path = open_evaluation(path) / RESULTS_NAME
    with reading(path), path.open(encoding="utf-8") as lines:
        for row in map(parse_json, lines):
            results.setdefault(row.pop("policy"), []).append(to_result(row))
    return results


def read_outcome(path: Path) -> Outcome:
    """The outcome of an evaluation, in its folder or that of its run. Raises DataError: it is of an earlier version, which kept
    no trajectories, or they cannot be read; and what `open_evaluation` does."""
    stage_dir = open_evaluation(path)
    if not (stage_dir / TRAJECTORIES_PATH).is_file():
        raise DataError(f"{stage_dir}: no {TRAJECTORIES_PATH}, as of an earlier version. Evaluate again: python jobs/evaluate.py")
    questions = schemas.read_table(stage_dir / QUESTIONS_NAME, schemas.QUESTIONS).to_pylist()
    trajectories: dict[str, list[Trajectory]] = {}
    for row in schemas.read_table(stage_dir / TRAJECTORIES_PATH, schemas.TRAJECTORIES).to_pylist():
        trajectories.setdefault(row["provenance"]["policy"], []).append(schemas.to_trajectory(row))
    return Outcome(stage_dir, [schemas.to_question(row) for row in questions], trajectories, _read_comparison(stage_dir))
