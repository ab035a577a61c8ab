"""Bootstrap intervals of means, paired tests of differences with Holm's correction and their power, over clusters of questions
that depend on each other.

Values come as arrays of shape (num_questions, num_measures), NaN where a measure does not apply to a question.
Clusters, the questions of a document each, are what is resampled, so one draw serves every measure and every policy and keeps
them paired.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, t

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

    Returns:
        Shape (num_resamples, num_measures); all NaN with one cluster, of which every draw is the same.
    """
    sums = sum_clusters(np.nan_to_num(values), clusters)
    counts, columns = sum_distinct(~np.isnan(values), clusters)
    num_clusters = len(sums)
    if num_clusters == 1:
        return np.full((num_resamples, values.shape[1]), np.nan)
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


POWER = 0.8
"""The chance with which a detectable difference is found."""


def compute_sign_flip_p_values(first: Floats, second: Floats, clusters: Ints, num_permutations: int, seed: int) -> Floats:
    """Two-sided p-values of the paired permutation test on mean(second) - mean(first). Shape (num_measures,).

    Under the null hypothesis the two policies are exchangeable on every cluster, so each permutation swaps them on all questions
    of a random half of the clusters; without NaN this flips the signs of the differences.  The observed order counts as one
    permutation (Phipson and Smyth, 2010), so a p-value is never 0.  A permutation without a value counts as extreme.
    """
    known_first, known_second = ~np.isnan(first), ~np.isnan(second)
    filled_first, filled_second = np.nan_to_num(first), np.nan_to_num(second)
    gains = sum_clusters(filled_second - filled_first, clusters)
    moved_counts, columns = sum_distinct(known_second.astype(np.int64) - known_first, clusters)
    sum_first, sum_second = filled_first.sum(axis=0), filled_second.sum(axis=0)
    count_first, count_second = known_first.sum(axis=0).astype(np.float64), known_second.sum(axis=0).astype(np.float64)
    observed = np.abs(compute_means(second) - compute_means(first))
    generator = np.random.default_rng(seed)
    num_extreme = np.zeros(first.shape[1], dtype=np.int64)
    for num_rows in split_draws(num_permutations, max(gains.shape)):
        swapped = generator.integers(0, 2, size=(num_rows, len(gains))).astype(np.float64)
        moved_sum, moved_count = swapped @ gains, (swapped @ moved_counts)[:, columns]
        mean_first = divide(sum_first + moved_sum, count_first + moved_count)
        mean_second = divide(sum_second - moved_sum, count_second - moved_count)
        difference = np.abs(mean_second - mean_first)
        # Sums of the same numbers in another order differ in the last digits; ties must still count as ties.
        num_extreme += np.sum(np.isnan(difference) | (difference >= observed * (1 - 1e-9) - 1e-12), axis=0)
    p_values = (num_extreme + 1) / (num_permutations + 1)
    return np.where(np.isnan(observed), np.nan, p_values)


def compute_mcnemar_p_value(num_wins: int, num_losses: int) -> float:
    """Exact two-sided McNemar test: are wins and losses equally likely? 1 when the two policies never differ.

    It takes every question for independent of the others, so it is for clusters of one question each.
    """
    num_discordant = num_wins + num_losses
    return float(binomtest(num_wins, num_discordant, 0.5).pvalue) if num_discordant else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for looking at all of them, in their order (Holm, 1979): at most alpha of them are below alpha in vain.

    The smallest is multiplied by their number, the next by one less, and so on; none becomes smaller than one before it, none
    larger than 1.
    """
    order = np.argsort(p_values, kind="stable")
    scaled = np.arange(len(order), 0, -1) * np.asarray(p_values, np.float64)[order]
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted.tolist()


def compute_holm_levels(p_values: Sequence[float], alpha: float) -> list[float]:
    """The level at which Holm's procedure tests each one beside the others as they are, in their order.

    A test is found, that is its corrected p-value is at most `alpha`, exactly if its own is at most this: `alpha` over the number
    of tests that are left when all others that hold are taken away, from the smallest on.
    """
    levels = []
    for index in range(len(p_values)):
        num_left = len(p_values)
        for other in sorted([*p_values[:index], *p_values[index + 1 :]]):
            if other > alpha / num_left:
                break
            num_left -= 1
        levels.append(alpha / num_left)
    return levels


def compute_standard_errors(samples: Floats, num_clusters: int) -> Floats:
    """The standard error of each column's mean, from its resampled values. Shape (num_measures,).

    Resampling takes the clusters that there are for all that could be, which makes the variance too small by one in their
    number (Davison and Hinkley, 1997, section 2.3.2); that is corrected.

    Returns:
        NaN where a resample has no value, where there is one cluster, and where all resamples are equal: the error is unknown.
    """
    if num_clusters < 2:
        return np.full(samples.shape[1], np.nan)
    errors = samples.std(axis=0, ddof=1) * np.sqrt(num_clusters / (num_clusters - 1))
    return np.where(errors > 1e-10, errors, np.nan)


def compute_detectable_difference(standard_error: float, num_clusters: int, level: float) -> float:
    """The smallest true difference that a two-sided paired test at `level` would find with `POWER`.

    By the t approximation of Bloom (Minimum detectable effects, Evaluation Review 19, 1995), with one degree of freedom less
    than there are clusters. Sign flips agree with it, for they approach the t-test; the exact McNemar test needs a little more,
    as it is conservative where few questions differ.
    """
    degrees = num_clusters - 1
    return float((t.ppf(1 - level / 2, degrees) + t.ppf(POWER, degrees)) * standard_error)


def compute_num_needed(value: float, detectable: float, num_questions: int) -> int | None:
    """The questions with which a true difference of `value` would be detectable, where now one of `detectable` is.

    The standard error shrinks with the square root of their number (Cohen, Statistical Power Analysis, 1988), if those to come
    are of other documents, with as many questions to each. That the difference is as large as the one seen is an assumption:
    it is itself no surer than its interval (Hoenig and Heisey, 2001).

    Returns:
        None without a difference, which no number would show, and where it is detectable already.
    """
    if value == 0 or abs(value) >= detectable:
        return None
    return math.ceil(num_questions * (detectable / value) ** 2)
