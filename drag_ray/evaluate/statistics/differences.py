"""The differences of two policies on the same questions: how large, how sure, and how large one would have to be to be seen."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from drag_ray.evaluate.measure import Measure, Unit
from drag_ray.evaluate.statistics.intervals import Floats, Ints, compute_interval, compute_means
from drag_ray.evaluate.statistics.significance import (
    compute_detectable_difference,
    compute_mcnemar_p_value,
    compute_sign_flip_p_values,
    compute_standard_errors,
)
from drag_ray.evaluate.statistics.tabulation import Pair, Table

MCNEMAR, SIGN_FLIP = "mcnemar", "sign_flip"


class Finding(StrEnum):
    """The finding of a difference of the family (see `family`)."""

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
        policy: whose metric it is.
        reference: the policy that is subtracted.
        reference_value: its metric, under the terms of this comparison.
        value: the difference; None where one of them has no value.
        low: lower end of its interval.
        high: upper end.
        standard_error: of the value, by the same resamples as the interval; None where it is unknown.
        p_value: of the paired test, not corrected.
        is_at_floor: no permutation was as extreme, so the p-value is an upper bound.
        test: `mcnemar` (exact) for shares where no questions depend on each other, else `sign_flip` (permutation of clusters).
        num_higher: questions on which the policy's value is above the reference's.
        num_lower: those on which it is below.
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


def build_differences(
    tables: Mapping[str, Table],
    references: Mapping[Pair, Table],
    measures: Sequence[Measure],
    clusters: Ints,
    confidence: float,
    *,
    num_permutations: int,
    seed: int,
) -> list[list[Difference]]:
    """For each pair the difference in each measure.

    Args:
        tables: of each policy.
        references: of the reference of each pair of (policy, reference), under the terms of the pair.
        measures: the columns of the tables.
        clusters: as in `intervals`.
        confidence: coverage of the intervals; what is left of 1 is the level of the tests.
        num_permutations: of the test.
        seed: of the permutations.
    """
    if not references:
        return []
    # One array for all pairs, so that clusters are swapped once.
    second = np.hstack([tables[policy].values for policy, _ in references])
    first = np.hstack([reference.values for reference in references.values()])
    p_values = compute_sign_flip_p_values(first, second, clusters, num_permutations, seed)
    num_clusters = int(clusters.max()) + 1
    found = []
    for place, ((policy, name), reference) in enumerate(references.items()):
        samples = tables[policy].samples - reference.samples
        both = _Both(policy, name, tables[policy].values, reference.values, samples)
        errors = compute_standard_errors(samples, num_clusters)
        offset = place * len(measures)
        found.append(
            [
                _build_difference(
                    both,
                    column,
                    is_exact=measure.unit is Unit.SHARE and num_clusters == len(clusters),
                    p_value=or_none(p_values[offset + column]),
                    floor=1 / (num_permutations + 1),
                    standard_error=or_none(errors[column]),
                    num_clusters=num_clusters,
                    confidence=confidence,
                )
                for column, measure in enumerate(measures)
            ]
        )
    return found


class _Both(NamedTuple):
    policy: str
    reference: str
    values: Floats
    reference_values: Floats
    samples: Floats


def _build_difference(
    both: _Both,
    column: int,
    *,
    is_exact: bool,
    p_value: float | None,
    floor: float,
    standard_error: float | None,
    num_clusters: int,
    confidence: float,
) -> Difference:
    values, reference_values = both.values[:, column], both.reference_values[:, column]
    mean, reference_mean = (or_none(compute_means(array[:, None])[0]) for array in (values, reference_values))
    value = None if mean is None or reference_mean is None else mean - reference_mean
    low, high = (None if value is None else compute_interval(both.samples[:, column], confidence)) or (None, None)
    num_higher, num_lower = int(np.sum(values > reference_values)), int(np.sum(values < reference_values))
    if is_exact and p_value is not None:
        p_value = compute_mcnemar_p_value(num_higher, num_lower)
    level = 1 - confidence
    return Difference(
        policy=both.policy,
        reference=both.reference,
        reference_value=reference_mean,
        value=value,
        low=low,
        high=high,
        standard_error=standard_error,
        p_value=p_value,
        is_at_floor=not is_exact and p_value is not None and p_value <= floor,
        test=MCNEMAR if is_exact else SIGN_FLIP,
        num_higher=num_higher,
        num_lower=num_lower,
        level=level,
        detectable=compute_detectable_difference(standard_error, num_clusters, level) if standard_error else None,
    )


def or_none(value: float) -> float | None:
    """NaN as None."""
    return None if math.isnan(value) else float(value)
