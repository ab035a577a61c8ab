"""The values of measures on single questions as arrays with a column a measure, and their means in resampled questions."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from drag_ray.evaluate.measure import Measure
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.evaluate.statistics.intervals import Floats, Ints, bootstrap_means

Pair = tuple[str, str]
"""A policy and the reference that is subtracted from it."""


class Table(NamedTuple):
    """`values` of shape (num_questions, num_measures), NaN where a measure does not apply; the `samples` of their means of shape
    (num_resamples, num_measures)."""

    values: Floats
    samples: Floats


def build_tables(
    results: Mapping[str, Sequence[QuestionResult]],
    pairs: Sequence[Pair],
    measures: Sequence[Measure],
    clusters: Ints,
    num_resamples: int,
    seed: int,
) -> tuple[dict[str, Table], dict[Pair, Table]]:
    """The table of each policy, and for each pair that of its reference, whose values may depend on the policy.

    All are drawn together, so that the samples of any two are paired.
    """
    values = {policy: _tabulate(rows, measures) for policy, rows in results.items()}
    dependent = [column for column, measure in enumerate(measures) if measure.compute_reference]
    replacements = {pair: _tabulate_reference(results[pair[0]], results[pair[1]], measures) for pair in pairs}
    blocks = [*values.values(), *replacements.values()]
    ends = np.cumsum([block.shape[1] for block in blocks])[:-1]
    samples = np.split(bootstrap_means(np.hstack(blocks), clusters, num_resamples, seed), ends, axis=1)
    tables = {policy: Table(values[policy], drawn) for policy, drawn in zip(values, samples, strict=False)}
    references = {}
    for pair, drawn in zip(pairs, samples[len(tables) :], strict=True):
        table = references[pair] = Table(*(array.copy() for array in tables[pair[1]]))
        table.values[:, dependent], table.samples[:, dependent] = replacements[pair], drawn
    return tables, references


def _tabulate(results: Sequence[QuestionResult], measures: Sequence[Measure]) -> Floats:
    applies = [not measure.needs_model or _has_model(results) for measure in measures]
    return _to_array([[m.compute(result) if a else None for m, a in zip(measures, applies, strict=True)] for result in results])


def _tabulate_reference(
    policy: Sequence[QuestionResult], reference: Sequence[QuestionResult], measures: Sequence[Measure]
) -> Floats:
    computes = [measure.compute_reference for measure in measures if measure.compute_reference]
    return _to_array([[compute(*both) for compute in computes] for both in zip(policy, reference, strict=True)])


def _to_array(cells: list[list[float | None]]) -> Floats:
    return np.array([[math.nan if cell is None else cell for cell in row] for row in cells], dtype=np.float64)


def _has_model(results: Sequence[QuestionResult]) -> bool:
    """False for a policy whose rollouts end well without one written token, such as searching the question itself."""
    finished = [result for result in results if not result.error]
    return not finished or any(result.num_completion_tokens for result in finished)
