"""Significance of differences, and the least that would have been seen: paired tests, Holm's correction, power.

Values and clusters come as in `intervals`.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import binomtest, t

from drag_ray.evaluate.statistics.intervals import Floats, Ints, compute_means, divide, split_draws, sum_clusters, sum_distinct

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
    adjusted, highest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = highest
    return adjusted


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
