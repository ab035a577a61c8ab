"""The definitions of what is reported. A measure is a definition; its value for a policy is a metric."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from drag_ray.evaluate.results import QuestionResult

PRIMARY_MEASURE = "first_hit_rate"
"""The one measure on which the verdict rests; it is fixed beforehand, the others are there to explain it."""

HIT_CUTOFFS = (1, 3, 5, 10)

TESTED_MEASURES = (PRIMARY_MEASURE, "hit_at_1", "hit_at_3", "hit_at_10", "mrr")
"""The measures on which the subject is tested against every other policy; they share one correction (see `family`)."""


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


def build_measures(top_k: int, depth: int, *, has_choices: bool, has_answers: bool, has_citations: bool) -> list[Measure]:
    """The measures of an evaluation that shows `top_k` pages and looks at `depth` of them.

    That of choosing needs a policy that chooses among several replies, those of answers need questions with gold answers, those
    of citations a policy that cites at all.
    """
    return [
        *_build_success_measures(top_k, depth),
        *_build_rank_measures(depth),
        *_build_effort_measures(has_choices=has_choices),
        *(_build_answer_measures() if has_answers else []),
        *(_build_citation_measures() if has_citations else []),
    ]


def _build_success_measures(top_k: int, depth: int) -> list[Measure]:
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
            f"any search shows evidence within its top {top_k}; more searches show more pages, so it compares nothing",
            Unit.SHARE,
            lambda r: float(r.is_found),
        ),
        Measure(
            "success_at_equal_pages",
            "Success at equal pages",
            f"evidence is among the pages that all searches show, to depth {depth}; in a difference those of the reference are "
            f"cut at as many as the policy shows for the question, at least {top_k} and at most {depth}: those that it shows, "
            "then those further down its first search, so the difference is not that of the two columns",
            Unit.SHARE,
            lambda r: float(r.is_met_within(r.count_compared())),
            compute_reference=lambda policy, reference: float(reference.is_met_within(policy.count_compared())),
        ),
    ]


def _build_rank_measures(depth: int) -> list[Measure]:
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


def _build_effort_measures(*, has_choices: bool) -> list[Measure]:
    """What a rollout costs. Failed rollouts are left out here, since one that broke off early would look cheap."""

    def measure(
        name: str, label: str, definition: str, compute: Callable[[QuestionResult], float | None], needs_model: bool = True
    ) -> Measure:
        return Measure(
            name,
            label,
            definition,
            Unit.COUNT,
            lambda r: None if r.error else compute(r),
            higher_is_better=False,
            needs_model=needs_model,
        )

    choosing = measure(
        "choosing_ms",
        "Choosing, ms",
        "milliseconds of searching for all replies to choose from and of choosing, beside the engines",
        lambda r: r.choosing_ms,
    )
    return [
        measure("pages_shown", "Pages shown", "distinct pages that all searches show", lambda r: r.count_shown(), False),
        measure("avg_iterations", "Iterations", "turns of the model in a rollout", lambda r: r.num_iterations),
        measure(
            "iterations_to_success",
            "Iterations to success",
            "turn of the first success over the questions with a success only",
            lambda r: r.iterations_to_success,
        ),
        measure("num_searches", "Searches", "searches in a rollout", lambda r: r.num_searches),
        measure("num_format_errors", "Format errors", "replies without a readable action", lambda r: r.num_format_errors),
        measure(
            "num_completion_tokens",
            "Tokens",
            "tokens written in a rollout, those of replies that were not chosen among them",
            lambda r: r.num_completion_tokens,
        ),
        *([choosing] if has_choices else []),
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
