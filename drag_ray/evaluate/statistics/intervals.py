"""Bootstrap intervals of means, over clusters of questions that depend on each other.

Values come as arrays of shape (num_questions, num_measures), NaN where a measure does not apply to a question.
Clusters, the questions of a document each, are what is resampled, so one draw serves every measure and every policy and keeps
them paired.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drag_ray.corpus.split import compute_components
from drag_ray.evaluate.question_result import QuestionResult

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHUNK_CELLS = 4_000_000
"""Cells of the largest scratch array, about 32 MB: memory stays bounded whatever the number of questions."""
FEW_CLUSTERS = 20
"""With fewer clusters of equal size intervals come out too narrow (Cameron and Miller, 2015, section VI)."""


@dataclass(frozen=True, slots=True)
class ClusterSizes:
    """The number of clusters, the questions of the largest, and how many of equal size would tell as much.

    The last is N^2 over the sum of the squared sizes (Kish, 1965).
    """

    num_clusters: int
    largest: int
    num_effective: float


class ClusteredQuestion(NamedTuple):
    """The names by which questions depend on each other; `file` is the document of the first evidence page, if one is known."""

    question_id: str
    file: str
    group: str


def compute_clusters(results: Sequence[QuestionResult]) -> Ints:
    """As `number_clusters`, of the questions of results."""
    return number_clusters([ClusteredQuestion(result.question_id, result.file, result.group) for result in results])


def number_clusters(questions: Sequence[ClusteredQuestion]) -> Ints:
    """The number of each question's cluster, from 0 in the order of their first questions. Shape (num_questions,).

    A cluster is a document, that of the first evidence page, or the documents of one group.  A group joins only documents that
    are its own with all their questions: groups that cross documents (near-duplicate entries of several manuals) would chain most
    of a collection into one cluster, from which nothing could be told. A question whose pages are not known is by itself.
    """
    groups: dict[str, set[str]] = defaultdict(set)
    for question in questions:
        groups[question.file].add(question.group)
    keys = (
        [
            ("file", asked.file) if asked.file else ("question", asked.question_id),
            *([("group", asked.group)] if asked.file and asked.group and len(groups[asked.file]) == 1 else []),
        ]
        for asked in questions
    )
    _, numbers = np.unique(compute_components(keys), return_inverse=True)
    return numbers.astype(np.int64)


def compute_cluster_sizes(clusters: Ints) -> ClusterSizes:
    """The sizes of clusters that are numbered as by `compute_clusters`."""
    sizes = np.bincount(clusters)
    return ClusterSizes(len(sizes), int(sizes.max()), float(sizes.sum() ** 2 / np.sum(sizes**2)))


@dataclass(frozen=True)
class Resampling:
    """The draws of intervals and tests of the same questions.

    Attributes:
        clusters: shape (num_questions,), as of `compute_clusters`.
        confidence: coverage of the intervals; what is left of 1 is the level of the tests.
        num_resamples: bootstrap resamples, and permutations of the tests.
        seed: makes both repeatable.
    """

    clusters: Ints
    confidence: float = 0.95
    num_resamples: int = 10_000
    seed: int = 0

    def draw_means(self, values: Floats) -> Floats:
        """As `bootstrap_means`."""
        return bootstrap_means(values, self.clusters, self.num_resamples, self.seed)

    def compute_interval(self, samples: Floats) -> tuple[float, float] | None:
        """As the function `compute_interval`."""
        return compute_interval(samples, self.confidence)


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
