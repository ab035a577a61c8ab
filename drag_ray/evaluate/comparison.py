"""Policies side by side on the same questions: every measure with its interval, every difference with its test."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from drag_ray.errors import DataError
from drag_ray.evaluate.intervals import (
    Floats,
    bootstrap_means,
    compute_interval,
    compute_mcnemar_p_value,
    compute_means,
    compute_sign_flip_p_values,
)
from drag_ray.evaluate.measures import Measure, Unit, build_measures
from drag_ray.evaluate.results import NO_TRAJECTORY, QuestionResult


@dataclass(frozen=True, slots=True)
class Metric:
    """The value of a measure for a policy: the mean over the `n` questions to which it applies, None without any."""

    value: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Difference:
    """The metric of `policy` minus that of `reference`, on the same questions.

    `num_higher` and `num_lower` count the questions on which the policy's value is above and below the reference's;
    `test` is `mcnemar` (exact) for shares and `sign_flip` (paired permutation) for the rest.
    """

    policy: str
    reference: str
    value: float | None
    low: float | None
    high: float | None
    p_value: float | None
    test: str
    num_higher: int
    num_lower: int


@dataclass(frozen=True, slots=True)
class Row:
    """One measure over all policies."""

    name: str
    label: str
    definition: str
    unit: Unit
    higher_is_better: bool
    metrics: dict[str, Metric]
    differences: tuple[Difference, ...]

    def difference(self, policy: str, reference: str) -> Difference:
        """The difference of `policy` to `reference`; KeyError where the two were not compared."""
        for difference in self.differences:
            if (difference.policy, difference.reference) == (policy, reference):
                return difference
        raise KeyError((policy, reference))


@dataclass(frozen=True, slots=True)
class Incidents:
    """What went wrong in the rollouts of a policy. The first three are disjoint and count as nothing found."""

    num_missing: int
    num_errors: int
    num_without_search: int
    num_failed_searches: int
    num_format_errors: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that the console and the report show in numbers.

    `subject` is the policy whose gain is in question. `first_search_ranks` holds the rank of the evidence in the first
    search, aligned with `question_ids`, None beyond `depth`.
    """

    baseline: str
    subject: str
    policies: tuple[str, ...]
    top_k: int
    depth: int
    confidence: float
    num_resamples: int
    seed: int
    rows: tuple[Row, ...]
    incidents: dict[str, Incidents]
    question_ids: tuple[str, ...]
    first_search_ranks: dict[str, tuple[int | None, ...]]

    @property
    def num_questions(self) -> int:
        return len(self.question_ids)

    def row(self, name: str) -> Row:
        """The row of the measure `name`; KeyError when it is not reported."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON-serialisable data, the values of single questions left out."""
        data = asdict(self)
        del data["question_ids"], data["first_search_ranks"]
        return {"num_questions": self.num_questions, **data}


def compare(
    results: Mapping[str, Sequence[QuestionResult]],
    baseline: str,
    subject: str = "",
    *,
    confidence: float = 0.95,
    num_resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compare every policy with `baseline` and `subject` with every other policy.

    Args:
        results: one result a question for each policy, in any order.
        baseline: the policy that the others are measured against.
        subject: the policy whose gain is in question; the last one that is not the baseline when empty.
        confidence: coverage of the intervals.
        num_resamples: bootstrap resamples, and permutations of the test.
        seed: makes both repeatable.

    Raises:
        DataError: a policy is unknown, there is nothing to compare, a policy has no or two results for a question,
            or top_k and depth differ.
    """
    subject = subject or next((name for name in reversed(list(results)) if name != baseline), "")
    _check_names(results, baseline, subject)
    aligned = _align(results)
    some = aligned[baseline]
    pairs = [(policy, baseline) for policy in aligned if policy != baseline]
    pairs += [(subject, policy) for policy in aligned if policy not in (subject, baseline)]
    return Comparison(
        baseline=baseline,
        subject=subject,
        policies=tuple(aligned),
        top_k=some[0].top_k,
        depth=some[0].depth,
        confidence=confidence,
        num_resamples=num_resamples,
        seed=seed,
        rows=_build_rows(aligned, pairs, confidence, num_resamples, seed),
        incidents={policy: _count_incidents(policy_results) for policy, policy_results in aligned.items()},
        question_ids=tuple(result.question_id for result in some),
        first_search_ranks={policy: tuple(r.first_search_rank for r in rs) for policy, rs in aligned.items()},
    )


def _build_rows(
    results: Mapping[str, Sequence[QuestionResult]],
    pairs: Sequence[tuple[str, str]],
    confidence: float,
    num_resamples: int,
    seed: int,
) -> tuple[Row, ...]:
    everything = [result for policy_results in results.values() for result in policy_results]
    measures = build_measures(
        everything[0].top_k,
        everything[0].depth,
        has_answers=any(result.anls is not None for result in everything),
        has_citations=any(result.document_citation.f1 > 0 for result in everything),
    )
    values = {policy: _tabulate(policy_results, measures) for policy, policy_results in results.items()}
    samples = {policy: bootstrap_means(table, num_resamples, seed) for policy, table in values.items()}
    metrics = {policy: _build_metrics(values[policy], samples[policy], confidence) for policy in values}
    differences = [
        _build_differences(pair, measures, values, samples, confidence, num_permutations=num_resamples, seed=seed)
        for pair in pairs
    ]
    return tuple(
        Row(
            measure.name,
            measure.label,
            measure.definition,
            measure.unit,
            measure.higher_is_better,
            {policy: metrics[policy][column] for policy in values},
            tuple(pair_differences[column] for pair_differences in differences),
        )
        for column, measure in enumerate(measures)
    )


def _check_names(results: Mapping[str, Sequence[QuestionResult]], baseline: str, subject: str) -> None:
    if len(results) < 2:
        raise DataError(f"a comparison needs at least two policies, got {', '.join(results) or 'none'}.")
    for role, name in (("baseline", baseline), ("subject", subject)):
        if name not in results:
            raise DataError(f"{role} {name!r}: no such policy, expected one of {', '.join(results)}.")
    if baseline == subject:
        raise DataError(f"policy {baseline!r} is both baseline and subject, expected two policies.")


def _align(results: Mapping[str, Sequence[QuestionResult]]) -> dict[str, list[QuestionResult]]:
    """The results of each policy in the order of the first one's questions."""
    first = next(iter(results))
    order = [result.question_id for result in results[first]]
    aligned = {}
    for policy, policy_results in results.items():
        counts = Counter(result.question_id for result in policy_results)
        missing, unknown = [id for id in order if id not in counts], set(counts) - set(order)
        repeated = [id for id, count in counts.items() if count > 1]
        if missing or unknown or repeated or not order:
            raise DataError(
                f"policy {policy!r}: {len(missing)} questions of {first!r} are missing, {len(unknown)} are not among them, "
                f"{len(repeated)} are there twice, of {len(order)} (such as "
                f"{(missing or sorted(unknown) or repeated or ['none'])[0]!r}). Expected one result for each question, a failed "
                "rollout included."
            )
        by_id = {result.question_id: result for result in policy_results}
        aligned[policy] = [by_id[id] for id in order]
    settings = {(result.top_k, result.depth) for policy_results in aligned.values() for result in policy_results}
    if len(settings) != 1:
        raise DataError(f"results of several (top_k, depth): {sorted(settings)}, expected one for all policies.")
    return aligned


def _tabulate(results: Sequence[QuestionResult], measures: Sequence[Measure]) -> Floats:
    """Values of shape (num_questions, num_measures), NaN where a measure does not apply."""
    applies = [not measure.needs_model or _has_model(results) for measure in measures]
    cells = [[m.compute(result) if a else None for m, a in zip(measures, applies, strict=True)] for result in results]
    return np.array([[math.nan if cell is None else cell for cell in row] for row in cells], dtype=np.float64)


def _has_model(results: Sequence[QuestionResult]) -> bool:
    """False for a policy whose rollouts end well without one written token, such as searching the question itself."""
    finished = [result for result in results if not result.error]
    return not finished or any(result.num_completion_tokens for result in finished)


def _build_metrics(values: Floats, samples: Floats, confidence: float) -> list[Metric]:
    counts, means = np.sum(~np.isnan(values), axis=0), compute_means(values)
    metrics = []
    for column, count in enumerate(counts):
        interval = compute_interval(samples[:, column], confidence) if count else None
        low, high = interval or (None, None)
        metrics.append(Metric(_or_none(means[column]), low, high, int(count)))
    return metrics


def _build_differences(
    pair: tuple[str, str],
    measures: Sequence[Measure],
    values: Mapping[str, Floats],
    samples: Mapping[str, Floats],
    confidence: float,
    *,
    num_permutations: int,
    seed: int,
) -> list[Difference]:
    policy, reference = pair
    means = compute_means(values[policy]) - compute_means(values[reference])
    resampled = samples[policy] - samples[reference]
    p_values = compute_sign_flip_p_values(values[reference], values[policy], num_permutations, seed)
    num_higher = np.sum(values[policy] > values[reference], axis=0)
    num_lower = np.sum(values[policy] < values[reference], axis=0)
    differences = []
    for column, measure in enumerate(measures):
        higher, lower = int(num_higher[column]), int(num_lower[column])
        value = _or_none(means[column])
        interval = None if value is None else compute_interval(resampled[:, column], confidence)
        low, high = interval or (None, None)
        is_share = measure.unit is Unit.SHARE
        p_value = _or_none(p_values[column])
        if is_share and p_value is not None:
            p_value = compute_mcnemar_p_value(higher, lower)
        test = "mcnemar" if is_share else "sign_flip"
        differences.append(Difference(policy, reference, value, low, high, p_value, test, higher, lower))
    return differences


def _count_incidents(results: Sequence[QuestionResult]) -> Incidents:
    return Incidents(
        num_missing=sum(result.error == NO_TRAJECTORY for result in results),
        num_errors=sum(result.error not in ("", NO_TRAJECTORY) for result in results),
        num_without_search=sum(not result.error and result.num_searches == 0 for result in results),
        num_failed_searches=sum(result.num_failed_searches for result in results),
        num_format_errors=sum(result.num_format_errors for result in results),
    )


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
