"""Bootstrap intervals of means, over clusters of questions.

Values come as arrays of shape (num_questions, num_measures), NaN where a measure does not apply to a question.
Clusters are what is resampled (see `clusters`), so one draw serves every measure and every policy and keeps them paired.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHUNK_CELLS = 4_000_000
"""Cells of the largest scratch array, about 32 MB: memory stays bounded whatever the number of questions."""


def compute_means(values: Floats) -> Floats:
    """Mean of each column over the questions to which it applies; NaN where it applies to none. Shape (num_measures,)."""
    return divide(np.nansum(values, axis=0), np.sum(~np.isnan(values), axis=0))


def bootstrap_means(values: Floats, clusters: Ints, num_resamples: int, seed: int) -> Floats:
    """Means of clusters of questions drawn with replacement (Efron, 1979; Davison and Hinkley, 1997, section 3.8).

    A mean is over the questions of the drawn clusters.  Two calls with the same seed and clusters draw the same ones, so the
    difference of their results is the paired bootstrap of the difference.

    Args:
        values: shape (num_questions, num_measures).
        clusters: shape (num_questions,), the number of each question's cluster, from 0 without gaps.
        num_resamples: how often all clusters are drawn.
        seed: of the draws.

    Returns:
        Shape (num_resamples, num_measures).
    """
    sums = sum_clusters(np.nan_to_num(values), clusters)
    counts, columns = sum_distinct(~np.isnan(values), clusters)
    num_clusters = len(sums)
    generator = np.random.default_rng(seed)
    means = []
    for num_rows in split_draws(num_resamples, max(sums.shape)):
        drawn = generator.integers(0, num_clusters, size=(num_rows, num_clusters))
        drawn += np.arange(num_rows)[:, None] * num_clusters
        times = np.bincount(drawn.ravel(), minlength=num_rows * num_clusters).reshape(num_rows, num_clusters)
        weights = times.astype(np.float64)
        means.append(divide(weights @ sums, (weights @ counts)[:, columns]))
    return np.concatenate(means)


def compute_interval(samples: Floats, confidence: float) -> tuple[float, float] | None:
    """Percentile interval of one column of resampled values, None when no resample has a value."""
    known = samples[~np.isnan(samples)]
    if known.size == 0:
        return None
    low, high = np.quantile(known, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def sum_clusters(values: Floats, clusters: Ints) -> Floats:
    """The sum of each column over the questions of each cluster. Shape (num_clusters, num_measures)."""
    sums = np.zeros((int(clusters.max()) + 1, values.shape[1]))
    np.add.at(sums, clusters, values)
    return sums


def sum_distinct(values: NDArray[np.bool_] | Ints, clusters: Ints) -> tuple[Floats, Ints]:
    """As `sum_clusters`, for columns of which many are equal: the sums of the distinct ones, and which of them each column is."""
    distinct, columns = np.unique(values, axis=1, return_inverse=True)
    return sum_clusters(distinct.astype(np.float64), clusters), columns.ravel()


def split_draws(num_draws: int, num_cells: int) -> Iterator[int]:
    """Sizes of chunks of draws that add up to `num_draws`; each draw takes `num_cells` in the largest scratch array."""
    chunk = max(1, _CHUNK_CELLS // num_cells)
    for start in range(0, num_draws, chunk):
        yield min(chunk, num_draws - start)


def divide(sums: Floats, counts: NDArray[np.int64] | Floats) -> Floats:
    """Sums as means; NaN where nothing was counted."""
    return np.divide(sums, counts, out=np.full(np.shape(sums), np.nan), where=counts > 0.5)
