"""The tests that the verdict may rest on: the subject against every other policy on a few measures, corrected together."""

from collections.abc import Sequence
from dataclasses import replace

from drag_ray.evaluate.measures import PRIMARY_MEASURE, TESTED_MEASURES
from drag_ray.evaluate.rows import Row
from drag_ray.evaluate.significance import holm


def correct_rows(rows: Sequence[Row], subject: str, top_k: int) -> tuple[Row, ...]:
    """The rows with Holm's correction over the family, in the differences of `subject` and the measures of `TESTED_MEASURES`.

    Hit@top_k is the first-hit rate by another name: it has that p-value and counts once.
    """
    same = f"hit_at_{top_k}"
    tests = {
        (row.name, difference.reference): difference.p_value
        for row in rows
        if row.name in TESTED_MEASURES and row.name != same
        for difference in row.differences
        if difference.policy == subject and difference.p_value is not None
    }
    adjusted = dict(zip(tests, holm(list(tests.values())), strict=True))
    return tuple(
        replace(
            row,
            differences=tuple(
                replace(
                    difference,
                    adjusted_p_value=adjusted.get((PRIMARY_MEASURE if row.name == same else row.name, difference.reference)),
                )
                if difference.policy == subject
                else difference
                for difference in row.differences
            ),
        )
        for row in rows
    )


def count_tests(rows: Sequence[Row], top_k: int) -> int:
    """How many tests were corrected together."""
    return sum(d.adjusted_p_value is not None for row in rows if row.name != f"hit_at_{top_k}" for d in row.differences)
