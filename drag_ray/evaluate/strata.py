"""The primary measure on parts of the questions: by category, and by how far apart the evidence lies."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from drag_ray.evaluate.measure import Measure, Unit
from drag_ray.evaluate.question_result import QuestionResult

MAX_CATEGORIES = 20


def build_strata(results: Mapping[str, Sequence[QuestionResult]]) -> list[Measure]:
    """The first-hit rate on each part of the questions, as a measure that does not apply to the others.

    A set of questions without categories, or of one, has no parts of this kind, and so for hops.  The `MAX_CATEGORIES` largest
    categories are told apart; the others are one part.

    Args:
        results: the results of each policy, for the same questions in the same order.
    """
    some = next(iter(results.values()))
    counts = Counter(result.category for result in some)
    large = {category for category, _ in counts.most_common(MAX_CATEGORIES)}
    return [
        *_build_parts("category", some, lambda result: result.category if result.category in large else "(others)"),
        *_build_parts("hops", some, lambda result: result.hops.value),
    ]


def _build_parts(kind: str, results: Sequence[QuestionResult], classify: Callable[[QuestionResult], str]) -> list[Measure]:
    parts = Counter(map(classify, results))
    if len(parts) < 2:
        return []
    return [
        Measure(
            f"{kind}:{part}",
            f"{kind} {part or '(none)'}",
            f"first-hit rate on the {count} questions of {kind} {part or '(none)'}",
            Unit.SHARE,
            lambda result, part=part: float(result.is_first_hit) if classify(result) == part else None,
        )
        for part, count in parts.most_common()
    ]
