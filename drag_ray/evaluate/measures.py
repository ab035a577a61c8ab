"""The measures that are reported, beginning with those of what searches find."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from drag_ray.evaluate.criterion import ANSWER_ACCURACY, FIRST_HIT_RATE
from drag_ray.evaluate.measure import Measure, Unit
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.evaluate.rollout_measures import (
    build_answer_measures,
    build_citation_measures,
    build_effort_measures,
    build_query_measures,
    build_tool_measures,
)

HIT_CUTOFFS = (1, 3, 5, 10)


def build_measures(results: Mapping[str, Sequence[QuestionResult]], primary: str = FIRST_HIT_RATE) -> list[Measure]:
    """The measures that say something of these results, beginning with those of the kind of `primary`.

    Those of recall need questions with several evidence pages, those of tools a policy that calls one, those of answers
    questions with gold answers, of which one needs a judge, those of citations a policy that cites at all. That which is primary
    is there in any case.
    """
    everything = [result for policy_results in results.values() for result in policy_results]
    top_k, depth = everything[0].top_k, everything[0].depth
    has_judge = any(result.semantic is not None for result in everything)
    has_answers = primary == ANSWER_ACCURACY or any(result.anls is not None for result in everything)
    of_searches = [
        _of_known_pages(measure)
        for measure in (
            *_build_success_measures(top_k, depth),
            *_build_rank_measures(depth),
            *_build_conditional_measures(),
            *(_build_recall_measures(depth) if any(result.num_evidence > 1 for result in everything) else []),
        )
    ]
    of_rollouts = [
        *build_effort_measures(),
        *build_query_measures(),
        *build_tool_measures(sorted({use.tool for result in everything for use in result.tool_uses})),
    ]
    of_answers = [
        *(build_answer_measures(has_judge=has_judge) if has_answers else []),
        *(build_citation_measures() if any(result.document_citation.f1 > 0 for result in everything) else []),
    ]
    kinds = [of_searches, of_rollouts, of_answers]
    kinds.sort(key=lambda kind: all(measure.name != primary for measure in kind))
    return [measure for kind in kinds for measure in kind]


def _of_known_pages(measure: Measure) -> Measure:
    """The same over the questions whose evidence is known."""
    compute_reference = measure.compute_reference
    return replace(
        measure,
        compute=lambda result: measure.compute(result) if result.num_evidence else None,
        compute_reference=compute_reference
        and (lambda policy, reference: compute_reference(policy, reference) if policy.num_evidence else None),
    )


def _build_success_measures(top_k: int, depth: int) -> list[Measure]:
    return [
        Measure(
            FIRST_HIT_RATE,
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
            f"first search has evidence, whichever page of it, among its first {k}",
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
            f"ndcg_at_{min(10, depth)}",
            f"nDCG@{min(10, depth)}",
            "discounted gain of all evidence pages in the first search, over that of the best ranking",
            Unit.SCORE,
            lambda r: r.compute_ndcg(min(10, r.depth)),
        ),
    ]


def _build_conditional_measures() -> list[Measure]:
    """Of the questions that have a hit alone, so that a policy with fewer of them may look better."""
    return [
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


def _build_recall_measures(depth: int) -> list[Measure]:
    """Measures of questions with several evidence pages: the share that is found, and whether all are."""
    cutoffs = [k for k in HIT_CUTOFFS if k <= depth]
    recalls = [
        Measure(
            f"recall_at_{k}",
            f"Recall@{k}",
            f"share of the evidence pages that the first search has among its first {k}",
            Unit.SCORE,
            lambda r, k=k: r.compute_recall(k),
        )
        for k in cutoffs
    ]
    complete = [
        Measure(
            f"all_at_{k}",
            f"All@{k}",
            f"first search has all evidence pages among its first {k}",
            Unit.SHARE,
            lambda r, k=k: float(r.compute_recall(k) == 1),
        )
        for k in cutoffs
    ]
    return recalls + complete
