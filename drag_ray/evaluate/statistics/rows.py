"""Every measure with its interval, every difference with its test.

The verdict may rest on a family of tests: one policy or some against others on a few measures, corrected together.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from drag_ray.evaluate.measure import FIRST_HIT_RATE, Criterion, Measure, Unit
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.evaluate.statistics.differences import Difference, Finding, Pair, Table, build_differences, build_tables, or_none
from drag_ray.evaluate.statistics.intervals import (
    Resampling,
    compute_cluster_sizes,
    compute_detectable_difference,
    compute_holm_levels,
    compute_means,
    compute_num_needed,
    holm,
)


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
        return {(difference.policy, difference.reference): difference for difference in self.differences}[policy, reference]


def build_rows(
    results: Mapping[str, Sequence[QuestionResult]], pairs: Sequence[Pair], measures: Sequence[Measure], resampling: Resampling
) -> tuple[Row, ...]:
    """The rows of the measures, with a difference for each pair of (policy, reference).

    Args:
        results: the results of each policy, for the same questions in the same order.
        pairs: which policies to subtract from which.
    """
    if not measures:
        return ()
    tables, references = build_tables(results, pairs, measures, resampling)
    metrics = {policy: _build_metrics(table, resampling) for policy, table in tables.items()}
    differences = build_differences(tables, references, measures, resampling)
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


def _build_metrics(table: Table, resampling: Resampling) -> list[Metric]:
    counts, means = np.sum(~np.isnan(table.values), axis=0), compute_means(table.values)
    metrics = []
    for column, count in enumerate(counts):
        interval = resampling.compute_interval(table.samples[:, column]) if count else None
        low, high = interval or (None, None)
        metrics.append(Metric(or_none(means[column]), low, high, int(count)))
    return metrics


def correct_rows(
    rows: Sequence[Row], criterion: Criterion, subjects: Collection[str], top_k: int, resampling: Resampling
) -> tuple[Row, ...]:
    """The rows with Holm's correction over the family, in the differences of `subjects` and the measures that `criterion` has
    tested: what they come to, and what would have been detected at the level that the correction leaves them.

    Hit@top_k is the first-hit rate by another name: where that is tested, it has that p-value and counts once.
    """
    same = f"hit_at_{top_k}" if FIRST_HIT_RATE in criterion.tested else ""
    tests = {
        (row.name, difference.policy, difference.reference): difference.p_value
        for row in rows
        if row.name in criterion.tested and row.name != same
        for difference in row.differences
        if difference.policy in subjects and difference.p_value is not None
    }
    p_values, alpha = list(tests.values()), 1 - resampling.confidence
    num_clusters = compute_cluster_sizes(resampling.clusters).num_clusters
    corrected = dict(zip(tests, zip(holm(p_values), compute_holm_levels(p_values, alpha), strict=True), strict=True))

    def correct(row: Row, difference: Difference) -> Difference:
        policy = difference.policy
        found = corrected.get((FIRST_HIT_RATE if row.name == same else row.name, policy, difference.reference))
        if found is None:
            return difference
        return _correct_difference(difference, *found, num_clusters, row.metrics[policy].n, alpha)

    return tuple(replace(row, differences=tuple(correct(row, difference) for difference in row.differences)) for row in rows)


def _correct_difference(
    difference: Difference, adjusted: float, level: float, num_clusters: int, num_questions: int, alpha: float
) -> Difference:
    finding = _find(difference, is_significant=adjusted < alpha)
    detectable, num_needed = difference.detectable, None
    if difference.standard_error is not None:
        detectable = compute_detectable_difference(difference.standard_error, num_clusters, level)
        if finding is Finding.UNSURE and difference.value is not None:
            num_needed = compute_num_needed(difference.value, detectable, num_questions)
    return replace(
        difference, adjusted_p_value=adjusted, level=level, detectable=detectable, finding=finding, num_needed=num_needed
    )


def _find(difference: Difference, *, is_significant: bool) -> Finding:
    if difference.low is None or difference.high is None or not is_significant:
        return Finding.UNSURE
    if difference.low > 0:
        return Finding.MORE
    return Finding.LESS if difference.high < 0 else Finding.UNSURE


def count_tests(rows: Sequence[Row], top_k: int) -> int:
    """The number of tests that were corrected together."""
    return sum(d.adjusted_p_value is not None for row in rows if row.name != f"hit_at_{top_k}" for d in row.differences)
