"""Every measure with its interval, every difference with its test."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from drag_ray.evaluate.intervals import (
    Floats,
    bootstrap_means,
    compute_interval,
    compute_mcnemar_p_value,
    compute_means,
    compute_sign_flip_p_values,
)
from drag_ray.evaluate.measures import Measure, Unit, build_measures
from drag_ray.evaluate.results import QuestionResult


@dataclass(frozen=True, slots=True)
class Metric:
    """The value of a measure for a policy: the mean over the `n` questions to which it applies, None without any."""

    value: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Difference:
    """The metric of `policy` minus that of `reference`, on the same questions.

    `num_higher` and `num_lower` count the questions on which the policy's value is above and below the reference's;
    `test` is `mcnemar` (exact) for shares and `sign_flip` (paired permutation) for the rest.
    """

    policy: str
    reference: str
    value: float | None
    low: float | None
    high: float | None
    p_value: float | None
    test: str
    num_higher: int
    num_lower: int


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
    pairs: Sequence[tuple[str, str]],
    confidence: float,
    num_resamples: int,
    seed: int,
) -> tuple[Row, ...]:
    """The rows of all measures that apply, with a difference for each pair of (policy, reference).

    Args:
        results: the results of each policy, for the same questions in the same order.
        pairs: which policies to subtract from which.
        confidence: coverage of the intervals.
        num_resamples: bootstrap resamples, and permutations of the test.
        seed: makes both repeatable.
    """
    everything = [result for policy_results in results.values() for result in policy_results]
    measures = build_measures(
        everything[0].top_k,
        everything[0].depth,
        has_answers=any(result.anls is not None for result in everything),
        has_citations=any(result.document_citation.f1 > 0 for result in everything),
    )
    values = {policy: _tabulate(policy_results, measures) for policy, policy_results in results.items()}
    samples = {policy: bootstrap_means(table, num_resamples, seed) for policy, table in values.items()}
    metrics = {policy: _build_metrics(values[policy], samples[policy], confidence) for policy in values}
    differences = [
        _build_differences(pair, measures, values, samples, confidence, num_permutations=num_resamples, seed=seed)
        for pair in pairs
    ]
    return tuple(
        Row(
            measure.name,
            measure.label,
            measure.definition,
            measure.unit,
            measure.higher_is_better,
            {policy: metrics[policy][column] for policy in values},
            tuple(pair_differences[column] for pair_differences in differences),
        )
        for column, measure in enumerate(measures)
    )


def _tabulate(results: Sequence[QuestionResult], measures: Sequence[Measure]) -> Floats:
    """Values of shape (num_questions, num_measures), NaN where a measure does not apply."""
    applies = [not measure.needs_model or _has_model(results) for measure in measures]
    cells = [[m.compute(result) if a else None for m, a in zip(measures, applies, strict=True)] for result in results]
    return np.array([[math.nan if cell is None else cell for cell in row] for row in cells], dtype=np.float64)


def _has_model(results: Sequence[QuestionResult]) -> bool:
    """False for a policy whose rollouts end well without one written token, such as searching the question itself."""
    finished = [result for result in results if not result.error]
    return not finished or any(result.num_completion_tokens for result in finished)


def _build_metrics(values: Floats, samples: Floats, confidence: float) -> list[Metric]:
    counts, means = np.sum(~np.isnan(values), axis=0), compute_means(values)
    metrics = []
    for column, count in enumerate(counts):
        interval = compute_interval(samples[:, column], confidence) if count else None
        low, high = interval or (None, None)
        metrics.append(Metric(_or_none(means[column]), low, high, int(count)))
    return metrics


def _build_differences(
    pair: tuple[str, str],
    measures: Sequence[Measure],
    values: Mapping[str, Floats],
    samples: Mapping[str, Floats],
    confidence: float,
    *,
    num_permutations: int,
    seed: int,
) -> list[Difference]:
    policy, reference = pair
    means = compute_means(values[policy]) - compute_means(values[reference])
    resampled = samples[policy] - samples[reference]
    p_values = compute_sign_flip_p_values(values[reference], values[policy], num_permutations, seed)
    num_higher = np.sum(values[policy] > values[reference], axis=0)
    num_lower = np.sum(values[policy] < values[reference], axis=0)
    differences = []
    for column, measure in enumerate(measures):
        higher, lower = int(num_higher[column]), int(num_lower[column])
        value = _or_none(means[column])
        interval = None if value is None else compute_interval(resampled[:, column], confidence)
        low, high = interval or (None, None)
        is_share = measure.unit is Unit.SHARE
        p_value = _or_none(p_values[column])
        if is_share and p_value is not None:
            p_value = compute_mcnemar_p_value(higher, lower)
        test = "mcnemar" if is_share else "sign_flip"
        differences.append(Difference(policy, reference, value, low, high, p_value, test, higher, lower))
    return differences


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
