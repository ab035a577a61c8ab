"""The log-linear model of the baseline `features`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from drag_ray.baselines.question_words import QuestionWords


@dataclass(frozen=True)
class FeatureModel:
    """A learned model. `kinds` are the terms that set evidence pages apart, with their weights, for each kind of question, the
    empty one of all; `weights` are of the standardised features, `(values - means) / deviations`."""

    words: QuestionWords = field(default_factory=lambda: QuestionWords([]))
    kinds: Mapping[frozenset[str], Mapping[str, float]] = field(default_factory=dict)
    means: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    num_questions: int = 0
