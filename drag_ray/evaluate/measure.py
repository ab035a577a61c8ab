"""A measure is a definition; its value for a policy is a metric."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from drag_ray.evaluate.question_result import QuestionResult


class Unit(StrEnum):
    """The unit that the mean of a measure is read in."""

    SHARE = "share"
    """A share of the questions; shown in percent."""
    RATE = "rate"
    """A mean of shares within a rollout; shown in percent."""
    SCORE = "score"
    """A mean of scores in 0..1."""
    COUNT = "count"
    """A mean of counts or of ranks."""

    @property
    def is_percent(self) -> bool:
        """True if the numbers are written in percent."""
        return self in (Unit.SHARE, Unit.RATE)


@dataclass(frozen=True, slots=True)
class Measure:
    """One definition. `compute` gives its value on one question, or None where it does not apply.

    The metric is the mean over the questions to which the measure applies.  With `needs_model` it does not apply to
    a policy without a model, such as searching the question itself.  With `compute_reference` the value of a reference depends
    on the policy that is compared with it: it is given the results of the policy and of the reference.
    """

    name: str
    label: str
    definition: str
    unit: Unit
    compute: Callable[[QuestionResult], float | None]
    higher_is_better: bool = True
    needs_model: bool = False
    compute_reference: Callable[[QuestionResult, QuestionResult], float | None] | None = None
