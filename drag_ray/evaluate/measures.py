"""The definitions of what is reported. A measure is a definition; its value for a policy is a metric."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from drag_ray.evaluate.results import QuestionResult

PRIMARY_MEASURE = "first_hit_rate"
"""The one measure on which the verdict rests; it is fixed beforehand, the others are there to explain it."""

HIT_CUTOFFS = (1, 3, 5, 10)


class Unit(StrEnum):
    """How the mean of a measure reads."""

    SHARE = "share"
    """A share of the questions; shown in percent."""
    SCORE = "score"
    """A mean of scores in 0..1."""
    COUNT = "count"
    """A mean of counts or of ranks."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One definition. `compute` gives its value on one question, or None where it does not apply.

    The metric is the mean over the questions to which the measure applies.  With `needs_model` it does not apply to
    a policy without a model, such as searching the question itself.
    """

    name: str
    label: str
    definition: str
    unit: Unit
    compute: Callable[[QuestionResult], float | None]
    higher_is_better: bool = True
    needs_model: bool = False


def build_measures(top_k: int, depth: int, *, has_answers: bool, has_citations: bool) -> list[Measure]:
    """The measures of an evaluation that shows `top_k` pages and looks at `depth` of them.

    Those of answers need questions with gold answers, those of citations a policy that cites at all.
    """
    return [
        *_build_search_measures(top_k, depth),
        *_build_effort_measures(),
        *(_build_answer_measures() if has_answers else []),
        *(_build_citation_measures() if has_citations else []),
    ]


def _build_search_measures(top_k: int, depth: int) -> list[Measure]:
    hits = [
        Measure(
            f"hit_at_{k}",
            f"Hit@{k}",
            f"first search has evidence among its first {k}",
            Unit.SHARE,
            lambda r, k=k: float(r.is_hit_at(k)),
        )
        for k in HIT_CUTOFFS
        if k <= depth
    ]
    return [
        Measure(
            PRIMARY_MEASURE,
            "First-hit rate",
            f"first search shows evidence within its top {top_k}",
            Unit.SHARE,
            lambda r: float(r.is_first_hit),
        ),
        Measure(
            "success_rate",
            "Success rate",
            f"any search shows evidence within its top {top_k}",
            Unit.SHARE,
            lambda r: float(r.is_found),
        ),
        *hits,
        Measure(
            "mrr",
            "MRR",
            f"1 / rank of the evidence in the first search, 0 when absent to depth {depth}",
            Unit.SCORE,
            lambda r: r.reciprocal_rank,
        ),
        Measure(
            "mrr_over_hits",
            "MRR over first hits",
            "1 / rank over the questions with a first hit only",
            Unit.SCORE,
            lambda r: r.reciprocal_rank if r.is_first_hit else None,
        ),
        Measure(
            "first_hit_rank",
            "Rank of first hits",
            "rank over the questions with a first hit only",
            Unit.COUNT,
            lambda r: r.first_search_rank if r.is_first_hit else None,
            higher_is_better=False,
        ),
        Measure(
            "best_hit_rank",
            "Best rank",
            "best rank of all searches over the questions with a success only",
            Unit.COUNT,
            lambda r: r.best_rank if r.is_found else None,
            higher_is_better=False,
        ),
    ]


def _build_effort_measures() -> list[Measure]:
    """What a rollout costs. Failed rollouts are left out here, since one that broke off early would look cheap."""

    def measure(name: str, label: str, definition: str, compute: Callable[[QuestionResult], float | None]) -> Measure:
        return Measure(
            name,
            label,
            definition,
            Unit.COUNT,
            lambda r: None if r.error else compute(r),
            higher_is_better=False,
            needs_model=True,
        )

    return [
        measure("avg_iterations", "Iterations", "turns of the model in a rollout", lambda r: r.num_iterations),
        measure(
            "iterations_to_success",
            "Iterations to success",
            "turn of the first success over the questions with a success only",
            lambda r: r.iterations_to_success,
        ),
        measure("num_searches", "Searches", "searches in a rollout", lambda r: r.num_searches),
        measure("num_format_errors", "Format errors", "replies without a readable action", lambda r: r.num_format_errors),
        measure("num_completion_tokens", "Tokens", "tokens written in a rollout", lambda r: r.num_completion_tokens),
    ]


def _build_answer_measures() -> list[Measure]:
    return [
        Measure(
            "anls",
            "ANLS*",
            "similarity of the answer to the best gold variant",
            Unit.SCORE,
            lambda r: r.anls,
            needs_model=True,
        ),
        Measure(
            "anls_accuracy",
            "Answer accuracy",
            "answers with ANLS* of at least 0.5",
            Unit.SHARE,
            lambda r: None if r.anls is None else float(r.anls >= 0.5),
            needs_model=True,
        ),
    ]


def _build_citation_measures() -> list[Measure]:
    return [
        Measure(
            f"{kind}_citation_{part}",
            f"{kind.capitalize()} citation {label}",
            f"{label} of the cited {kind}s, 0 when none is cited",
            Unit.SCORE,
            lambda r, kind=kind, part=part: getattr(getattr(r, f"{kind}_citation"), part),
            needs_model=True,
        )
        for kind in ("page", "document")
        for part, label in (("precision", "precision"), ("recall", "recall"), ("f1", "F1"))
    ]
