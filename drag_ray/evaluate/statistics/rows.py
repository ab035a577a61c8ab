"""Every measure with its interval, every difference with its test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from drag_ray.evaluate.measure import Measure, Unit
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.evaluate.statistics.differences import Difference, build_differences, or_none
from drag_ray.evaluate.statistics.intervals import Ints, compute_interval, compute_means
from drag_ray.evaluate.statistics.tabulation import Pair, Table, build_tables


@dataclass(frozen=True, slots=True)
class Metric:
    """The value of a measure for a policy: the mean over the `n` questions to which it applies, None without any."""

    value: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Row:
    """One measure over all policies."""

    name: str
    label: str
    definition: str
    unit: Unit
    higher_is_better: bool
    metrics: dict[str, Metric]
    differences: tuple[Difference, ...]

    def difference(self, policy: str, reference: str) -> Difference:
        """The difference of `policy` to `reference`; KeyError where the two were not compared."""
        for difference in self.differences:
            if (difference.policy, difference.reference) == (policy, reference):
                return difference
        raise KeyError((policy, reference))


def build_rows(
    results: Mapping[str, Sequence[QuestionResult]],
    pairs: Sequence[Pair],
    measures: Sequence[Measure],
    clusters: Ints,
    confidence: float,
    num_resamples: int,
    seed: int,
) -> tuple[Row, ...]:
    """The rows of the measures, with a difference for each pair of (policy, reference).

    Args:
        results: the results of each policy, for the same questions in the same order.
        pairs: which policies to subtract from which.
        measures: a row each.
        clusters: as in `intervals`.
        confidence: coverage of the intervals.
        num_resamples: bootstrap resamples, and permutations of the test.
        seed: makes both repeatable.
    """
    if not measures:
        return ()
    tables, references = build_tables(results, pairs, measures, clusters, num_resamples, seed)
    metrics = {policy: _build_metrics(table, confidence) for policy, table in tables.items()}
    differences = build_differences(tables, references, measures, clusters, confidence, num_permutations=num_resamples, seed=seed)
    return tuple(
        Row(
            measure.name,
            measure.label,
            measure.definition,
            measure.unit,
            measure.higher_is_better,
            {policy: metrics[policy][column] for policy in tables},
            tuple(pair_differences[column] for pair_differences in differences),
        )
        for column, measure in enumerate(measures)
    )


def _build_metrics(table: Table, confidence: float) -> list[Metric]:
    counts, means = np.sum(~np.isnan(table.values), axis=0), compute_means(table.values)
    metrics = []
    for column, count in enumerate(counts):
        interval = compute_interval(table.samples[:, column], confidence) if count else None
        low, high = interval or (None, None)
        metrics.append(Metric(or_none(means[column]), low, high, int(count)))
    return metrics
