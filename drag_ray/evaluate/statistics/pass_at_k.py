"""Success of several rollouts of a question: pass@(k samples, n turns)."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from drag_ray.evaluate.measure import Criterion
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.evaluate.statistics.differences import or_none
from drag_ray.evaluate.statistics.intervals import Resampling, compute_clusters, compute_means


@dataclass(frozen=True, slots=True)
class PassRate:
    """The expected share of questions that one of `num_samples` rollouts solves within `num_turns` turns, with its interval."""

    num_samples: int
    num_turns: int
    value: float | None
    low: float | None
    high: float | None


def compute_pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """The chance that `k` of `num_samples` rollouts, drawn without replacement, hold one of the `num_correct` ones.

    The unbiased estimator of Chen et al. (Evaluating Large Language Models Trained on Code, 2021, equation 1), in exact integers.

    Raises:
        ValueError: `k` is not within 1 and `num_samples`.
    """
    if not 1 <= k <= num_samples:
        raise ValueError(f"pass@{k} of {num_samples} samples, expected k of 1 to {num_samples}.")
    return 1 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def compute_pass_rates(
    samples: Sequence[QuestionResult], criterion: Criterion, confidence: float, num_resamples: int
) -> tuple[PassRate, ...]:
    """pass@(k, n) for k of 1, 2, 4, ... samples and each number of turns, of rollouts with several samples a question.

    k goes as far as the question with the fewest samples, so that all are of the same questions.  A rollout that failed is one
    that solves nothing.  The samples must not have been stopped at a success (`collect.enough_successes`), or it is biased.
    """
    by_question: dict[str, list[QuestionResult]] = defaultdict(list)
    for sample in samples:
        by_question[sample.question_id].append(sample)
    fewest = min(map(len, by_question.values()))
    sizes = [2**power for power in range(fewest.bit_length())]
    turns = range(1, max((criterion.solved_at(sample) or 1 for sample in samples), default=1) + 1)
    columns = [(k, num_turns) for num_turns in turns for k in sizes]
    values = np.empty((len(by_question), len(columns)))
    for row, rollouts in enumerate(by_question.values()):
        solved = [turn for rollout in rollouts if (turn := criterion.solved_at(rollout)) is not None]
        for column, (k, num_turns) in enumerate(columns):
            values[row, column] = compute_pass_at_k(len(rollouts), sum(turn <= num_turns for turn in solved), k)
    clusters = compute_clusters([rollouts[0] for rollouts in by_question.values()])
    resampling = Resampling(clusters, confidence, num_resamples)
    drawn = resampling.draw_means(values)
    return tuple(
        PassRate(k, num_turns, or_none(mean), *(resampling.compute_interval(drawn[:, place]) or (None, None)))
        for place, ((k, num_turns), mean) in enumerate(zip(columns, compute_means(values), strict=True))
    )
