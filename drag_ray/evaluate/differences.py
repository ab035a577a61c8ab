"""The differences of two policies on the same questions: how large, how sure, and how large one would have to be to be seen."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from drag_ray.evaluate.intervals import Ints, compute_interval, compute_means
from drag_ray.evaluate.measures import Measure, Unit
from drag_ray.evaluate.significance import (
    compute_detectable_differences,
    compute_mcnemar_p_value,
    compute_sign_flip_p_values,
)
from drag_ray.evaluate.tabulation import Pair, Table

MCNEMAR, SIGN_FLIP = "mcnemar", "sign_flip"


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
        p_value: of the paired test, not corrected.
        test: `mcnemar` (exact) for shares where no questions depend on each other, else `sign_flip` (permutation of clusters).
        num_higher: questions on which the policy's value is above the reference's.
        num_lower: those on which it is below.
        adjusted_p_value: corrected for all tests of the family (see `family`), None outside it.
        detectable: the smallest true difference that these questions would show (see `significance`), None where that is unknown.
    """

    policy: str
    reference: str
    reference_value: float | None
    value: float | None
    low: float | None
    high: float | None
    p_value: float | None
    test: str
    num_higher: int
    num_lower: int
    adjusted_p_value: float | None = None
    detectable: float | None = None


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
        confidence: coverage of the intervals; what is left of 1 is the level of the test that `detectable` is about.
        num_permutations: of the test.
        seed: of the permutations.
    """
    # One array for all pairs, so that clusters are swapped once.
    second = np.hstack([tables[policy].values for policy, _ in references])
    first = np.hstack([reference.values for reference in references.values()])
    p_values = compute_sign_flip_p_values(first, second, clusters, num_permutations, seed)
    detectable = compute_detectable_differences(first, second, clusters, 1 - confidence)
    are_independent = len(np.unique(clusters)) == len(clusters)
    found = []
    for place, ((policy, name), reference) in enumerate(references.items()):
        both = _Both(policy, name, tables[policy], reference)
        offset = place * len(measures)
        found.append(
            [
                _build_difference(
                    both,
                    column,
                    is_exact=measure.unit is Unit.SHARE and are_independent,
                    p_value=or_none(p_values[offset + column]),
                    detectable=or_none(detectable[offset + column]),
                    confidence=confidence,
                )
                for column, measure in enumerate(measures)
            ]
        )
    return found


class _Both(NamedTuple):
    policy: str
    reference: str
    table: Table
    reference_table: Table


def _build_difference(
    both: _Both, column: int, *, is_exact: bool, p_value: float | None, detectable: float | None, confidence: float
) -> Difference:
    values, reference_values = both.table.values[:, column], both.reference_table.values[:, column]
    mean, reference_mean = (or_none(compute_means(array[:, None])[0]) for array in (values, reference_values))
    value = None if mean is None or reference_mean is None else mean - reference_mean
    samples = both.table.samples[:, column] - both.reference_table.samples[:, column]
    low, high = (None if value is None else compute_interval(samples, confidence)) or (None, None)
    num_higher, num_lower = int(np.sum(values > reference_values)), int(np.sum(values < reference_values))
    if is_exact and p_value is not None:
        p_value = compute_mcnemar_p_value(num_higher, num_lower)
    return Difference(
        policy=both.policy,
        reference=both.reference,
        reference_value=reference_mean,
        value=value,
        low=low,
        high=high,
        p_value=p_value,
        test=MCNEMAR if is_exact else SIGN_FLIP,
        num_higher=num_higher,
        num_lower=num_lower,
        detectable=detectable,
    )


def or_none(value: float) -> float | None:
    """NaN as None."""
    return None if math.isnan(value) else float(value)
