"""The values of measures on single questions as arrays, and the differences of two policies on the same questions: how large, how
sure, and how large one would have to be to be seen."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from drag_ray.evaluate.measure import Measure, Unit
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.evaluate.statistics.intervals import (
    Floats,
    Resampling,
    compute_detectable_difference,
    compute_mcnemar_p_value,
    compute_means,
    compute_sign_flip_p_values,
    compute_standard_errors,
)

MCNEMAR, SIGN_FLIP = "mcnemar", "sign_flip"

Pair = tuple[str, str]
"""A policy and the reference that is subtracted from it."""


class Table(NamedTuple):
    """`values` of shape (num_questions, num_measures), NaN where a measure does not apply; the `samples` of their means of shape
    (num_resamples, num_measures)."""

    values: Floats
    samples: Floats


class Finding(StrEnum):
    """The finding of a difference of the family (see `rows`)."""

    MORE = "more"
    """The interval is above 0, and the corrected test agrees."""
    LESS = "less"
    """The interval is below 0, and the corrected test agrees."""
    UNSURE = "unsure"
    """Chance alone can make it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The metric of `policy` minus that of `reference`, on the same questions.

    Attributes:
        reference_value: its metric, under the terms of this comparison.
        value: the difference; None where one of them has no value.
        standard_error: of the value, by the same resamples as the interval; None where it is unknown.
        p_value: of the paired test, not corrected.
        is_at_floor: no permutation was as extreme, so the p-value is an upper bound.
        test: `mcnemar` (exact) for shares where no questions depend on each other, else `sign_flip` (permutation of clusters).
        num_higher: questions on which the policy's value is above the reference's; `num_lower` below.
        level: below which the p-value has to be: what the correction leaves of 1 - confidence, all of it outside the family.
        detectable: the smallest true difference that these questions would show at this level, None where that is unknown.
        adjusted_p_value: corrected for all tests of the family, None outside it.
        finding: what it comes to, None outside the family.
        num_needed: the questions that would show a true difference as large as this one; None where it is found, and where no
            number is known (see `significance`).
    """

    policy: str
    reference: str
    reference_value: float | None
    value: float | None
    low: float | None
    high: float | None
    standard_error: float | None
    p_value: float | None
    is_at_floor: bool
    test: str
    num_higher: int
    num_lower: int
    level: float
    detectable: float | None
    adjusted_p_value: float | None = None
    finding: Finding | None = None
    num_needed: int | None = None


def build_tables(
    results: Mapping[str, Sequence[QuestionResult]], pairs: Sequence[Pair], measures: Sequence[Measure], resampling: Resampling
) -> tuple[dict[str, Table], dict[Pair, Table]]:
    """The table of each policy, and for each pair that of its reference, whose values may depend on the policy.

    All are drawn together, so that the samples of any two are paired.
    """
    values = {policy: _tabulate(rows, measures) for policy, rows in results.items()}
    dependent = [column for column, measure in enumerate(measures) if measure.compute_reference]
    replacements = {pair: _tabulate_reference(results[pair[0]], results[pair[1]], measures) for pair in pairs}
    blocks = [*values.values(), *replacements.values()]
    ends = np.cumsum([block.shape[1] for block in blocks])[:-1]
    samples = np.split(resampling.draw_means(np.hstack(blocks)), ends, axis=1)
    tables = {policy: Table(values[policy], drawn) for policy, drawn in zip(values, samples, strict=False)}
    references = {}
    for pair, drawn in zip(pairs, samples[len(tables) :], strict=True):
        table = references[pair] = Table(*(array.copy() for array in tables[pair[1]]))
        table.values[:, dependent], table.samples[:, dependent] = replacements[pair], drawn
    return tables, references


def _tabulate(results: Sequence[QuestionResult], measures: Sequence[Measure]) -> Floats:
    applies = [not measure.needs_model or _has_model(results) for measure in measures]
    cells = [[m.compute(result) if a else None for m, a in zip(measures, applies, strict=True)] for result in results]
    return np.array(cells, dtype=np.float64)


def _tabulate_reference(
    policy: Sequence[QuestionResult], reference: Sequence[QuestionResult], measures: Sequence[Measure]
) -> Floats:
    computes = [measure.compute_reference for measure in measures if measure.compute_reference]
    cells = [[compute(*both) for compute in computes] for both in zip(policy, reference, strict=True)]
    return np.array(cells, dtype=np.float64)


def _has_model(results: Sequence[QuestionResult]) -> bool:
    """False for a policy whose rollouts end well without one written token, such as searching the question itself."""
    finished = [result for result in results if not result.error]
    return not finished or any(result.usage.num_completion_tokens for result in finished)


def build_differences(
    tables: Mapping[str, Table], references: Mapping[Pair, Table], measures: Sequence[Measure], resampling: Resampling
) -> list[list[Difference]]:
    """For each pair the difference in each measure."""
    if not references:
        return []
    # One array for all pairs, so that clusters are swapped once.
    second = np.hstack([tables[policy].values for policy, _ in references])
    first = np.hstack([reference.values for reference in references.values()])
    clusters, num_permutations = resampling.clusters, resampling.num_resamples
    p_values = iter(compute_sign_flip_p_values(first, second, clusters, num_permutations, resampling.seed))
    found: list[list[Difference]] = []
    for pair, reference in references.items():
        table = tables[pair[0]]
        errors = compute_standard_errors(table.samples - reference.samples, int(clusters.max()) + 1)
        both = (pair, table, reference)
        found.append(
            [
                _build_difference(both, column, measure.unit, or_none(next(p_values)), or_none(errors[column]), resampling)
                for column, measure in enumerate(measures)
            ]
        )
    return found


def _build_difference(
    both: tuple[Pair, Table, Table],
    column: int,
    unit: Unit,
    p_value: float | None,
    standard_error: float | None,
    resampling: Resampling,
) -> Difference:
    """The difference in one measure; `p_value` is that of the permutation test."""
    pair, table, reference = both
    values, reference_values = table.values[:, column], reference.values[:, column]
    samples = table.samples[:, column] - reference.samples[:, column]
    mean, reference_mean = (or_none(compute_means(array[:, None])[0]) for array in (values, reference_values))
    value = None if mean is None or reference_mean is None else mean - reference_mean
    low, high = (None if value is None else resampling.compute_interval(samples)) or (None, None)
    num_higher, num_lower = int(np.sum(values > reference_values)), int(np.sum(values < reference_values))
    num_clusters, level = int(resampling.clusters.max()) + 1, 1 - resampling.confidence
    is_exact = unit is Unit.SHARE and num_clusters == len(resampling.clusters)
    if is_exact and p_value is not None:
        p_value = compute_mcnemar_p_value(num_higher, num_lower)
    return Difference(
        *pair,
        reference_value=reference_mean,
        value=value,
        low=low,
        high=high,
        standard_error=standard_error,
        p_value=p_value,
        is_at_floor=not is_exact and p_value is not None and p_value <= 1 / (resampling.num_resamples + 1),
        test=MCNEMAR if is_exact else SIGN_FLIP,
        num_higher=num_higher,
        num_lower=num_lower,
        level=level,
        detectable=compute_detectable_difference(standard_error, num_clusters, level) if standard_error else None,
    )


def or_none(value: float) -> float | None:
    """NaN as None."""
    return None if math.isnan(value) else float(value)
