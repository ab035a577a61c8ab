"""The tests that the verdict may rest on: the subject against every other policy on a few measures, corrected together."""

from collections.abc import Sequence
from dataclasses import replace

from drag_ray.evaluate.criterion import FIRST_HIT_RATE, Criterion
from drag_ray.evaluate.statistics.clusters import ClusterSizes
from drag_ray.evaluate.statistics.differences import Difference, Finding
from drag_ray.evaluate.statistics.rows import Row
from drag_ray.evaluate.statistics.significance import compute_detectable_difference, compute_holm_levels, compute_num_needed, holm


def correct_rows(
    rows: Sequence[Row], criterion: Criterion, subject: str, top_k: int, *, confidence: float, clusters: ClusterSizes
) -> tuple[Row, ...]:
    """The rows with Holm's correction over the family, in the differences of `subject` and the measures that `criterion` has
    tested: what they come to, and what would have been detected at the level that the correction leaves them.

    Hit@top_k is the first-hit rate by another name: where that is tested, it has that p-value and counts once.
    """
    same = f"hit_at_{top_k}" if FIRST_HIT_RATE in criterion.tested else ""
    tests = {
        (row.name, difference.reference): difference.p_value
        for row in rows
        if row.name in criterion.tested and row.name != same
        for difference in row.differences
        if difference.policy == subject and difference.p_value is not None
    }
    p_values = list(tests.values())
    corrected = dict(zip(tests, zip(holm(p_values), compute_holm_levels(p_values, 1 - confidence), strict=True), strict=True))

    def correct(row: Row, difference: Difference) -> Difference:
        found = corrected.get((FIRST_HIT_RATE if row.name == same else row.name, difference.reference))
        if difference.policy != subject or found is None:
            return difference
        return _correct_difference(difference, *found, clusters.num_clusters, row.metrics[subject].n, confidence)

    return tuple(replace(row, differences=tuple(correct(row, difference) for difference in row.differences)) for row in rows)


def _correct_difference(
    difference: Difference, adjusted: float, level: float, num_clusters: int, num_questions: int, confidence: float
) -> Difference:
    finding = _find(difference, is_significant=adjusted < 1 - confidence)
    detectable, num_needed = difference.detectable, None
    if difference.standard_error is not None:
        detectable = compute_detectable_difference(difference.standard_error, num_clusters, level)
        if finding is Finding.UNSURE and difference.value is not None:
            num_needed = compute_num_needed(difference.value, detectable, num_questions)
    return replace(
        difference, adjusted_p_value=adjusted, level=level, detectable=detectable, finding=finding, num_needed=num_needed
    )


def _find(difference: Difference, *, is_significant: bool) -> Finding:
    if difference.low is None or difference.high is None or not is_significant:
        return Finding.UNSURE
    if difference.low > 0:
        return Finding.MORE
    return Finding.LESS if difference.high < 0 else Finding.UNSURE


def count_tests(rows: Sequence[Row], top_k: int) -> int:
    """The number of tests that were corrected together."""
    return sum(d.adjusted_p_value is not None for row in rows if row.name != f"hit_at_{top_k}" for d in row.differences)
