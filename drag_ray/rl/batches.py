"""The batch of a step: its rollouts, scored and credited as recorded ones are, become training rows and figures."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl

from drag_ray.agent.degeneration import copies_question, find_repetitive
from drag_ray.finetune.methods.grpo import LEAST_ADVANTAGE
from drag_ray.format.config import FormatConfig
from drag_ray.format.layout import SHOWN_COLUMNS, Layout
from drag_ray.format.leaks import find_leaks, screen_rows
from drag_ray.format.row_format import load_format
from drag_ray.format.row_parts import encode_rows
from drag_ray.format.tables import ScoredPart
from drag_ray.process.config import ProcessConfig
from drag_ray.process.trajectories import read_records, select_trajectories
from drag_ray.process.turns import explode_turns, summarise_trajectories
from drag_ray.rollout.journal import read_engine, read_ids
from drag_ray.types import ActionKind

_ACTING = (ActionKind.SEARCH.value, ActionKind.TOOL.value)


@dataclass(frozen=True)
class Batch:
    """Rollouts as they are learned from.

    Attributes:
        lines: training rows of the format `rl_steps`, a line of JSON each.
        learned: the questions whose rollouts differ in what they earned.
        figures: what the rollouts came to, as of `describe`.
    """

    lines: bytes
    learned: frozenset[str]
    figures: dict[str, Any]


def find_engines(paths: Sequence[Path]) -> dict[str, str]:
    """The engine that drew each rollout of some files, by the rollout's id."""
    return {name: read_engine(path) for path in paths for name in read_ids(path)}


def compare_engines(gaps: Sequence[tuple[str, float]], engines: Mapping[str, str]) -> dict[str, Any]:
    """Tell whether each engine drew from the policy that it was to draw from: what it recorded is then what the trainer finds.

    Args:
        gaps: of replies, each with its rollout: see `PolicyLearner.learn`.
        engines: of the rollouts.

    Returns:
        worst_engine_kl, the mean divergence of the engine that is furthest from the trainer, in nats a token, and worst_engine,
        its name; nothing where no log-probabilities are known.
    """
    of_engine = defaultdict[str, list[float]](list)
    for rollout, gap in gaps:
        of_engine[engines[rollout]].append(-gap)
    if not of_engine:
        return {}
    means = {engine: fmean(values) for engine, values in of_engine.items()}
    worst = max(means, key=lambda engine: abs(means[engine]))
    return {"worst_engine_kl": round(means[worst], 6), "worst_engine": worst}


def score(paths: Sequence[Path], config: ProcessConfig) -> ScoredPart:
    """The rollouts of some files, scored as the process stage does. Raises ArtifactError where a file cannot be read, and
    DataError where `config.top_k` is beyond the recorded depth."""
    frame = select_trajectories(read_records(paths, config.read_depth), config.top_k).frame
    turns = explode_turns(frame, config)
    return ScoredPart(turns, summarise_trajectories(frame, turns))


def build_batch(part: ScoredPart, config: FormatConfig) -> Batch:
    """The training rows of rollouts. Those that leak are left out, and counted as `leaked` among the figures."""
    row_format = load_format("rl_steps")
    built = row_format.build_rows(part, config)
    rows = screen_rows(built, find_leaks(part.trajectories))
    leaked = {"leaked": built.height - rows.height} if rows.height < built.height else {}
    learned = rows.filter(pl.col("advantage").abs() >= LEAST_ADVANTAGE)["question_id"].unique()
    layout = Layout.of(part.trajectories)
    table = layout.apply(rows, row_format.schema, part.trajectories.select("trajectory_id", *SHOWN_COLUMNS))
    return Batch(encode_rows(table).lines.to_pybytes(), frozenset(learned), describe(part) | leaked)


def describe(part: ScoredPart) -> dict[str, Any]:
    """Figures of rollouts. Returns rollouts; reward (the mean of theirs) and spread (the mean variance of it in a question);
    reply_tokens (a reply's mean); without_search (the share that neither searches nor calls a tool) and idle (one of these);
    repetitive (the share of replies that go round in circles); cut (the share at their token limit) and longest (a rollout with
    one of these); copied (the share of searches that hold the whole question); deviation (of a rollout's reward) and worst (the
    rollout that earned least)."""
    turns, rollouts = part.turns, part.trajectories
    acting = turns.filter(pl.col("action").is_in(_ACTING))
    idle = rollouts.join(acting.select("trajectory_id").unique(), on="trajectory_id", how="anti", maintain_order="left")
    searches = turns.filter(pl.col("action") == ActionKind.SEARCH.value)
    spread = rollouts.group_by("question_id").agg(pl.col("reward").var(ddof=0))["reward"].mean()
    figures = {
        "reward": rollouts["reward"].mean(),
        "spread": spread,
        "reply_tokens": turns["completion_token_ids"].list.len().mean(),
        "without_search": idle.height / max(1, rollouts.height),
        "repetitive": find_repetitive(turns["reply"]).mean(),
        "cut": turns["is_truncated"].mean(),
        "deviation": rollouts["reward"].std(ddof=0),
        "copied": searches.select(copies_question(pl.col("query"), pl.col("question")).mean()).item(),
    }
    numbers = {name: round(value or 0.0, 6) for name, value in figures.items() if isinstance(value, float | int | None)}
    seen = {"idle": idle, "longest": turns.filter("is_truncated"), "worst": rollouts.sort("reward")}
    return {"rollouts": rollouts.height, **numbers, **{name: next(iter(of["trajectory_id"]), "") for name, of in seen.items()}}
