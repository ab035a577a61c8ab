"""The use of later turns: success within so many turns, beside single searches that show as many pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from drag_ray.evaluate.question_result import QuestionResult, is_within
from drag_ray.evaluate.statistics.intervals import Floats, Ints, bootstrap_means, compute_interval


@dataclass(frozen=True, slots=True)
class TurnSuccess:
    """The shares of questions of which evidence is shown within the first `turn` turns of a policy, and by others at equal pages.

    Attributes:
        turn: counted from 1.
        num_pages: the mean of the pages to which all are cut: those that the policy has shown on a question up to here, at least
            top_k and at most depth.
        success: the policy's share.
        first_search: that of its own first search, shown as far.
        question: that of the question searched as it stands, shown as far; None where that is not known, like those that follow.
        difference: `success` less `question`.
        low: lower end of the difference's interval.
        high: its upper end.
    """

    turn: int
    num_pages: float
    success: float
    first_search: float
    question: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None


def compute_turns(
    results: Mapping[str, Sequence[QuestionResult]],
    question_ranks: Sequence[int | None] | None,
    clusters: Ints,
    confidence: float,
    num_resamples: int,
    seed: int,
) -> dict[str, tuple[TurnSuccess, ...]]:
    """Success by turn of each policy that searches more than once, up to the last turn that shows a page.

    Args:
        results: the results of each policy, for the same questions in the same order.
        question_ranks: as `find_question_ranks` finds them.
        clusters: as in `intervals`.
        confidence: coverage of the intervals.
        num_resamples: bootstrap resamples.
        seed: of these.
    """
    tables = {
        (policy, turn): _tabulate(rows, question_ranks, turn)
        for policy, rows in results.items()
        if any(row.num_searches > 1 for row in rows)
        for turn in range(1, max(_find_last_turn(row) for row in rows) + 1)
    }
    if not tables:
        return {}
    differences = np.stack([table[:, 1] - table[:, 3] for table in tables.values()], axis=1)
    samples = bootstrap_means(differences, clusters, num_resamples, seed)
    found: dict[str, tuple[TurnSuccess, ...]] = {}
    for (policy, turn), column in zip(tables, samples.T, strict=True):
        summary = _summarise(turn, tables[policy, turn], column, confidence)
        found[policy] = (*found.get(policy, ()), summary)
    return found


def _find_last_turn(row: QuestionResult) -> int:
    return row.shown_by_turn.index(row.shown_by_turn[-1]) + 1 if row.shown_by_turn else 1


def _tabulate(rows: Sequence[QuestionResult], question_ranks: Sequence[int | None] | None, turn: int) -> Floats:
    """For each question the pages within `turn`, and whether the policy, its first search and the question find it there."""
    table = np.full((len(rows), 4), np.nan)
    for index, row in enumerate(rows):
        num_shown, num_pages = row.count_shown(turn), row.count_compared(turn)
        table[index, :3] = num_pages, row.is_met_within(min(num_shown, num_pages)), row.is_hit_at(num_pages)
        if question_ranks:
            table[index, 3] = is_within(question_ranks[index], num_pages)
    return table


def _summarise(turn: int, table: Floats, samples: Floats, confidence: float) -> TurnSuccess:
    num_pages, success, first_search, question = (float(mean) for mean in table.mean(axis=0))
    interval = compute_interval(samples, confidence)
    if interval is None:
        return TurnSuccess(turn, num_pages, success, first_search)
    return TurnSuccess(turn, num_pages, success, first_search, question, success - question, *interval)
