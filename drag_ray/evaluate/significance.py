"""Whether a difference is more than chance, and which one would have been seen: paired tests, Holm's correction, power.

Values and clusters come as in `intervals`.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import binomtest, t

from drag_ray.evaluate.intervals import Floats, Ints, compute_means, divide, split_draws, sum_clusters, sum_distinct

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


def compute_detectable_differences(first: Floats, second: Floats, clusters: Ints, alpha: float) -> Floats:
    """The smallest true differences that a two-sided paired test at `alpha` would find with `POWER` (Bloom, 1995).

    From the cluster-robust standard error of mean(second) - mean(first) and the t distribution with one degree of freedom less
    than there are clusters.

    Returns:
        Shape (num_measures,); NaN where a value is missing, where there is one cluster, and where no question differs, which
        leaves the error unknown.
    """
    differences = second - first
    residuals = sum_clusters(differences - differences.mean(axis=0), clusters)
    num_clusters = len(residuals)
    if num_clusters < 2:
        return np.full(first.shape[1], np.nan)
    variances = num_clusters / (num_clusters - 1) * np.sum(residuals**2, axis=0) / len(first) ** 2
    distance = t.ppf(1 - alpha / 2, num_clusters - 1) + t.ppf(POWER, num_clusters - 1)
    return np.where(variances > 1e-20, distance * np.sqrt(variances), np.nan)
