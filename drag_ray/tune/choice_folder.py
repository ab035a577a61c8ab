"""The outputs of the tune stage, for those that read them, and what it says."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from drag_ray.agent.config import AgentConfig
from drag_ray.errors import DamageError
from drag_ray.evaluate.report.parts import Part as TablePart
from drag_ray.evaluate.report.parts import format_console
from drag_ray.storage import artifacts
from drag_ray.storage.json_text import parse_json
from drag_ray.tune.choice import MOST_LOST, Choice, Decision, Part
from drag_ray.tune.first_stages import FirstStage

TABLE_NAME = "first_stages.jsonl"
"""A row for each first stage and part: its measures there."""
CHOICE_NAME = "choice.json"
"""The options to set, what led to them, and on how many questions."""
PART_NAMES = ("choosing", "checking")


def build_rows(parts: tuple[Part, Part], stages: Sequence[FirstStage], mrr_depth: int) -> list[dict[str, Any]]:
    """The table of all first stages, on both parts; vectors alone come once, whatever the words."""
    by_name = {stage.describe(): stage for stage in reversed(stages)}
    return [
        {
            "first_stage": stage.describe(),
            **stage._asdict(),
            "part": name,
            "questions": len(part.questions),
            **part.measure(stage, mrr_depth),
        }
        for stage in reversed(by_name.values())
        for name, part in zip(PART_NAMES, parts, strict=True)
    ]


def write_choice(folder: Path, choice: Choice, agent: AgentConfig, num_questions: Sequence[int]) -> None:
    """Write `choice.json`, whole or not at all."""
    record = {
        "options": choice.to_options(agent),
        "reason": choice.reason,
        "questions": dict(zip(PART_NAMES, num_questions, strict=True)),
        "decisions": [
            asdict(decision)
            | {"kept": decision.kept.describe(), "best": decision.best.describe(), "taken": decision.taken.describe()}
            for decision in choice.decisions
        ],
        "depth": choice.depth and asdict(choice.depth) | {"taken": choice.depth.taken},
    }
    artifacts.write_json(folder / CHOICE_NAME, record)


def read_options(folder: Path) -> dict[str, Any]:
    """The options that a finished stage has chosen, in sections; none where nothing could be chosen. Raises DamageError: the file
    is missing, or is not one of this stage."""
    path = folder / CHOICE_NAME
    try:
        options = parse_json(path.read_bytes())["options"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DamageError(f"{path}: not the choice of a search ({error}). Run: python jobs/tune.py") from None
    if not isinstance(options, dict):
        raise DamageError(f"{path}: not the choice of a search. Run: python jobs/tune.py")
    return options


def format_choice(rows: Sequence[dict[str, Any]], choice: Choice, agent: AgentConfig) -> str:
    """The table, of fusions those with the chosen words, a sentence for each decision, and a line with what to set."""
    names = [name for name in rows[0] if name.startswith(("hit", "mrr", "recall"))]
    labels = [name.replace("_at_", "@").replace("mrr", "MRR").replace("hit", "Hit") for name in names]
    by_stage: dict[str, list[dict[str, Any]]] = {}
    for row in (row for row in rows if row["retrieval"] in ("bm25", "dense") or row["words"] == choice.shown.words):
        by_stage.setdefault(row["first_stage"], []).append(row)
    sizes = " + ".join(f"{row['questions']:,} {row['part']}" for row in rows[: len(PART_NAMES)])
    table = [[f"{sizes} questions", *labels]]
    for stage, found in by_stage.items():
        table.append([stage, *(" / ".join(_write(row[name]) for row in found) for name in names)])
    parts = [
        TablePart("First stages", table=table),
        TablePart("Choice", [*map(_describe, choice.decisions), *_describe_depth(choice)]),
    ]
    stays = f"The search stays as it is configured: {choice.reason}."
    set_to = stays if choice.reason else f"Set: {' '.join(write_arguments(choice.to_options(agent)))}"
    return f"{format_console(parts)}\n{set_to}"


def _write(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}".removeprefix("0")


def _describe(decision: Decision) -> str:
    kept, best = decision.kept.describe(), decision.best.describe()
    if decision.gain is None or decision.low is None or decision.high is None:
        return f"{decision.measure}: no first stage is better than {kept} on the questions to choose by."
    gain = f"{decision.gain:+.3f} [{decision.low:+.3f}, {decision.high:+.3f}] on the questions to check by"
    taken = "so it is chosen" if decision.holds else f"which may be chance, so {kept} stays"
    return f"{decision.measure}: {best} gains {gain} over {kept}, {taken}."


def _describe_depth(choice: Choice) -> list[str]:
    if not (depth := choice.depth):
        return []
    found = ", ".join(f"{_write(recall)} at {number}" for number, recall in depth.recalls.items())
    recalls = f"Recall of {choice.candidates.describe()} on the questions to check by: {found}."
    if depth.lost is None or depth.high is None:
        few = "or may, with so few questions"
        return [
            recalls,
            f"Pages to read: fewer than {depth.most} lose more than {MOST_LOST:g} of the recall, {few}; all are read.",
        ]
    lost = f"{depth.lost:.3f} of the recall at {depth.most}, at most {depth.high:.3f}, on the questions to check by"
    taken = "so they are enough" if depth.taken < depth.most else f"which is too much, so {depth.most} are read"
    return [recalls, f"Pages to read: the best {depth.fewest} lose {lost}, {taken}."]


def write_arguments(options: dict[str, Any], section: str = "") -> list[str]:
    """Options in sections as arguments of a command line."""
    written: list[str] = []
    for name, value in options.items():
        path = f"{section}{name.replace('_', '-')}"
        written += write_arguments(value, f"{path}.") if isinstance(value, dict) else [f"--{path} {value}"]
    return written
