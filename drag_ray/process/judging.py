"""Judging of the rollouts that are to be trained on: `process.judge`."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from drag_ray.agent.judge import AnswerCase, Case, QueriesCase
from drag_ray.agent.tasks import ANSWERING, SEARCHING
from drag_ray.process.config import ProcessConfig
from drag_ray.process.trajectories import read_answers
from drag_ray.rollout.judgements import JUDGE_DIR_NAME, fingerprint_judge, judge_on_cluster, read_judgements
from drag_ray.types import ActionKind


class RolloutCases(NamedTuple):
    """The cases to judge of a rollout; None for what is known without a judge, or does not count."""

    answer: AnswerCase | None
    queries: QueriesCase | None


MAX_FAILURE_RATE = 0.2
"""Share of failed requests to the judge above which the stage stops."""


def list_cases(rollouts: pl.DataFrame, config: ProcessConfig) -> list[RolloutCases]:
    """The cases of each row. `rollouts`: with the columns task, question, answers, final_answer and turns (structs with action
    and query)."""
    turn = pl.element().struct
    searches = pl.col("turns").list.eval(turn.field("query").filter(turn.field("action") == ActionKind.SEARCH.value))
    columns = rollouts.select("task", "question", "answers", "final_answer", searches)
    return [_find_cases(*row, config=config) for row in columns.iter_rows()]


def _find_cases(
    task: str, question: str, gold: Sequence[str], answer: str, queries: Sequence[str], config: ProcessConfig
) -> RolloutCases:
    if task not in ANSWERING and not (task in SEARCHING and config.answer_weight):
        return RolloutCases(None, None)
    counts_queries = config.reward == "opensearch_vl" and task in ANSWERING and gold and answer.strip() and queries
    return RolloutCases(
        AnswerCase.find(question, gold, answer), QueriesCase(question, tuple(gold), tuple(queries)) if counts_queries else None
    )


def judge_rollouts(paths: Sequence[Path], config: ProcessConfig, folder: Path) -> float:
    """Have all that counts of the rollouts in these files judged; judgements are kept in `judge/` of the stage's `folder`.

    Returns:
        What the judge has cost.

    Raises:
        BudgetError: what its replies may cost is spent; the verdicts so far are kept.
        TooManyFailuresError: more than `MAX_FAILURE_RATE` of the requests failed.
        ConfigError: the engine cannot be made.
    """
    cases: dict[tuple[type[Case], str], Case] = {}
    for path in paths:
        for found in list_cases(read_answers(path), config):
            cases |= {(type(case), case.key): case for case in found if case}
    return judge_on_cluster(list(cases.values()), config.judge, folder, MAX_FAILURE_RATE)


def take_verdicts(trajectories: pl.DataFrame, config: ProcessConfig, folder: Path) -> tuple[pl.DataFrame, Counter[str]]:
    """The trajectories with `answer_reward` and `query_quality` as the judge has it, without those that it gave no verdict on.

    Returns:
        The trajectories, and counts: judged answers, trajectories left out as unjudged, and those without a verdict on their
        queries, whose reward is by their answer alone.
    """
    cases = list_cases(trajectories, config)
    answers, queries = (
        read_judgements(folder / JUDGE_DIR_NAME, fingerprint_judge(config.judge, kind)) for kind in (AnswerCase, QueriesCase)
    )
    known = trajectories["answer_reward"].to_list()
    rewards = [answers.find_score(case.answer) if case.answer else reward for case, reward in zip(cases, known, strict=True)]
    qualities = [queries.find_score(case.queries) if case.queries else None for case in cases]
    judged = trajectories.with_columns(
        pl.Series("answer_reward", rewards, dtype=pl.Float64), pl.Series("query_quality", qualities, dtype=pl.Float64)
    )
    kept = judged.filter(pl.col("answer_reward").is_not_null())
    counts = Counter(
        judged_answers=sum(bool(case.answer) and reward is not None for case, reward in zip(cases, rewards, strict=True)),
        unjudged=trajectories.height - kept.height,
        unjudged_queries=sum(bool(case.queries) and value is None for case, value in zip(cases, qualities, strict=True)),
    )
    return kept, counts
