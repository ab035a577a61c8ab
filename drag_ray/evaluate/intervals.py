"""How sure a mean or a difference is: bootstrap intervals, the paired permutation test and McNemar's test.

Values come as arrays of shape (num_questions, num_measures), NaN where a measure does not apply to a question.
Questions are what is resampled, so one draw serves every measure and every policy and keeps them paired.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

Floats = NDArray[np.float64]

_CHUNK_CELLS = 4_000_000
"""Cells of the largest scratch array, about 32 MB: memory stays bounded whatever the number of questions."""


def compute_means(values: Floats) -> Floats:
    """Mean of each column over the questions to which it applies; NaN where it applies to none. Shape (num_measures,)."""
    return _divide(np.nansum(values, axis=0), np.sum(~np.isnan(values), axis=0))


def bootstrap_means(values: Floats, num_resamples: int, seed: int) -> Floats:
    """Means of questions drawn with replacement (Efron, 1979). Shape (num_resamples, num_measures).

    Two calls with the same seed and number of questions draw the same questions, so the difference of their results
    is the paired bootstrap of the difference.
    """
    num_questions = values.shape[0]
    generator = np.random.default_rng(seed)
    known, filled = (~np.isnan(values)).astype(np.float64), np.nan_to_num(values)
    means = []
    for num_rows in _split(num_resamples, num_questions):
        drawn = generator.integers(0, num_questions, size=(num_rows, num_questions))
        drawn += np.arange(num_rows)[:, None] * num_questions
        counts = np.bincount(drawn.ravel(), minlength=num_rows * num_questions).reshape(num_rows, num_questions)
        weights = counts.astype(np.float64)
        means.append(_divide(weights @ filled, weights @ known))
    return np.concatenate(means)


def compute_interval(samples: Floats, confidence: float) -> tuple[float, float] | None:
    """Percentile interval of one column of resampled values, None when no resample has a value."""
    known = samples[~np.isnan(samples)]
    if known.size == 0:
        return None
    low, high = np.quantile(known, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def compute_sign_flip_p_values(first: Floats, second: Floats, num_permutations: int, seed: int) -> Floats:
    """Two-sided p-values of the paired permutation test on mean(second) - mean(first). Shape (num_measures,).

    Under the null hypothesis the two policies are exchangeable on every question, so each permutation swaps them on a
    random half; without NaN this flips the signs of the differences.  The observed order counts as one permutation
    (Phipson and Smyth, 2010), so a p-value is never 0.  A permutation without a value counts as extreme.
    """
    num_questions = first.shape[0]
    generator = np.random.default_rng(seed)
    known_first, known_second = (~np.isnan(first)).astype(np.float64), (~np.isnan(second)).astype(np.float64)
    filled_first, filled_second = np.nan_to_num(first), np.nan_to_num(second)
    observed = np.abs(compute_means(second) - compute_means(first))
    num_extreme = np.zeros(first.shape[1], dtype=np.int64)
    for num_rows in _split(num_permutations, num_questions):
        swapped = generator.integers(0, 2, size=(num_rows, num_questions)).astype(np.float64)
        moved_sum, moved_count = swapped @ (filled_second - filled_first), swapped @ (known_second - known_first)
        mean_first = _divide(filled_first.sum(axis=0) + moved_sum, known_first.sum(axis=0) + moved_count)
        mean_second = _divide(filled_second.sum(axis=0) - moved_sum, known_second.sum(axis=0) - moved_count)
        difference = np.abs(mean_second - mean_first)
        # Sums of the same numbers in another order differ in the last digits; ties must still count as ties.
        num_extreme += np.sum(np.isnan(difference) | (difference >= observed * (1 - 1e-9) - 1e-12), axis=0)
    p_values = (num_extreme + 1) / (num_permutations + 1)
    return np.where(np.isnan(observed), np.nan, p_values)


def compute_mcnemar_p_value(num_wins: int, num_losses: int) -> float:
    """Exact two-sided McNemar test: are wins and losses equally likely? 1 when the two policies never differ."""
    num_discordant = num_wins + num_losses
    return float(binomtest(num_wins, num_discordant, 0.5).pvalue) if num_discordant else 1.0


def _split(num_draws: int, num_questions: int) -> Iterator[int]:
    """Sizes of chunks of draws that add up to `num_draws`."""
    chunk = max(1, _CHUNK_CELLS // num_questions)
    for start in range(0, num_draws, chunk):
        yield min(chunk, num_draws - start)


def _divide(sums: Floats, counts: NDArray[np.int64] | Floats) -> Floats:
    return np.divide(sums, counts, out=np.full(np.shape(sums), np.nan), where=counts > 0.5)
