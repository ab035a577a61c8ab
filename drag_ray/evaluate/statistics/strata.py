"""Measures on parts of the questions: by category, by how far apart the evidence lies, and by what is text and what is image."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from drag_ray.evaluate.measure import Measure, Unit
from drag_ray.evaluate.question_result import QuestionResult

MAX_CATEGORIES = 20
RECALL_CUTOFFS = (1, 5, 10)


def build_strata(results: Mapping[str, Sequence[QuestionResult]], primary: Measure) -> list[Measure]:
    """The primary measure on each part of the questions, as a measure that does not apply to the others.

    A set of questions without categories, or of one, has no parts of this kind, and so for hops.  The `MAX_CATEGORIES` largest
    categories are told apart; the others are one part.

    Args:
        results: the results of each policy, for the same questions in the same order.
        primary: what the verdict rests on.
    """
    some = next(iter(results.values()))
    kinds = {"category": _classify_category(some), "hops": lambda result: result.hops.value}
    return [part for kind, classify in kinds.items() for part in _build_parts(kind, some, classify, primary)]


def build_recalls(results: Mapping[str, Sequence[QuestionResult]]) -> list[Measure]:
    """Recall of lists that were put in order, as M-BEIR has it (UniIR, https://arxiv.org/abs/2311.17136): on all questions, by
    what is text and what is image, and by category, which is the set there. Nothing where no list was.

    It is 1 for a question with any of its right candidates among the first k, however many there are of them, and else 0.

    Args:
        results: as for `build_strata`.
    """
    some = next(iter(results.values()))
    if not any(result.modalities for result in some):
        return []
    cutoffs = [k for k in RECALL_CUTOFFS if k <= some[0].depth]
    kinds: dict[str, Callable[[QuestionResult], str]] = {
        "": lambda result: "all",
        "modalities": lambda result: result.modalities or "(not shown)",
        "category": _classify_category(some),
    }
    return [
        Measure(
            f"recall_at_{k}:{f'{kind}:' * bool(kind)}{part}",
            f"Recall@{k} {part or '(none)'}",
            f"share of the {count} questions of {part or '(none)'} with a right candidate among the first {k}",
            Unit.SHARE,
            lambda result, k=k, part=part, classify=classify: float(result.is_hit_at(k)) if classify(result) == part else None,
        )
        for kind, classify in kinds.items()
        for part, count in sorted(Counter(map(classify, some)).items())
        for k in cutoffs
    ]


def _classify_category(results: Sequence[QuestionResult]) -> Callable[[QuestionResult], str]:
    counts = Counter(result.category for result in results)
    large = {category for category, _ in counts.most_common(MAX_CATEGORIES)}
    return lambda result: result.category if result.category in large else "(others)"


def _build_parts(
    kind: str, results: Sequence[QuestionResult], classify: Callable[[QuestionResult], str], primary: Measure
) -> list[Measure]:
    parts = Counter(map(classify, results))
    if len(parts) < 2:
        return []
    return [
        replace(
            primary,
            name=f"{kind}:{part}",
            label=f"{kind} {part or '(none)'}",
            definition=f"{primary.label.lower()} on the {count} questions of {kind} {part or '(none)'}",
            compute=lambda result, part=part: primary.compute(result) if classify(result) == part else None,
        )
        for part, count in parts.most_common()
    ]
