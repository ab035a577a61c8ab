"""The measures that are reported: of what searches find, of a rollout as a whole (cost, queries, answer), and on parts of the
questions."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from drag_ray.agent.answers import RIGHT_ANLS
from drag_ray.evaluate.measure import ANSWER_ACCURACY, FIRST_HIT_RATE, Measure, Unit
from drag_ray.evaluate.question_result import QuestionResult, ToolUse

HIT_CUTOFFS = (1, 3, 5, 10)
RECALL_CUTOFFS = (1, 5, 10)
MAX_CATEGORIES = 20


def build_measures(results: Mapping[str, Sequence[QuestionResult]], primary: str = FIRST_HIT_RATE) -> list[Measure]:
    """The measures that say something of these results, beginning with those of the kind of `primary`.

    Those of recall need questions with several evidence pages, those of tools a policy that calls one, those of answers
    questions with gold answers, of which one needs a judge, those of citations a policy that cites at all. That which is primary
    is there in any case.
    """
    everything = [result for policy_results in results.values() for result in policy_results]
    top_k, depth = everything[0].top_k, everything[0].depth
    has_judge = any(result.answer.semantic is not None for result in everything)
    has_answers = primary == ANSWER_ACCURACY or any(result.answer.anls is not None for result in everything)
    of_searches = [*_build_success_measures(top_k, depth), *_build_rank_measures(depth)]
    if any(result.num_evidence > 1 for result in everything):
        of_searches += _build_recall_measures(depth)
    of_searches = [_of_known_pages(measure) for measure in of_searches]
    tools = sorted({use.tool for result in everything for use in result.usage.tool_uses})
    of_tools = [measure for tool in tools for measure in build_tool_measures(tool)]
    of_rollouts = [*build_effort_measures(), *build_query_measures(), *of_tools]
    of_answers = [
        *(build_answer_measures(has_judge=has_judge) if has_answers else []),
        *(build_citation_measures() if any(result.answer.document_citation.f1 > 0 for result in everything) else []),
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
    first = f"first search shows evidence within its top {top_k}"
    every = f"any search shows evidence within its top {top_k}; more searches show more pages, so it compares nothing"
    equal = (
        f"evidence is among the pages of all searches, to depth {depth}; in a difference those of the reference are "
        f"cut at as many as the policy shows for the question, at least {top_k} and at most {depth}: those that it shows, "
        "then those further down its first search, so the difference is not that of the two columns"
    )
    return [
        Measure(FIRST_HIT_RATE, "First-hit rate", first, Unit.SHARE, lambda r: float(r.is_first_hit)),
        Measure("success_rate", "Success rate", every, Unit.SHARE, lambda r: float(r.is_found)),
        Measure(
            "success_at_equal_pages",
            "Success at equal pages",
            equal,
            Unit.SHARE,
            lambda r: float(r.is_met_within(r.count_compared())),
            compute_reference=lambda policy, reference: float(reference.is_met_within(policy.count_compared())),
        ),
    ]


def _build_rank_measures(depth: int) -> list[Measure]:
    mrr = f"1 / rank of the evidence in the first search, 0 when absent to depth {depth}"
    ndcg = "discounted gain of all evidence pages in the first search, over that of the best ranking"
    return [
        *_build_at_cutoffs(
            "Hit", "first search has evidence, whichever page of it, among its first", Unit.SHARE, depth, QuestionResult.is_hit_at
        ),
        Measure("mrr", "MRR", mrr, Unit.SCORE, lambda r: r.reciprocal_rank),
        Measure(
            f"ndcg_at_{min(10, depth)}", f"nDCG@{min(10, depth)}", ndcg, Unit.SCORE, lambda r: r.compute_ndcg(min(10, r.depth))
        ),
    ]


def _build_at_cutoffs(
    kind: str, definition: str, unit: Unit, depth: int, compute: Callable[[QuestionResult, int], float]
) -> list[Measure]:
    """A measure for each number of pages that rankings are as deep as, whose definition ends in it."""
    return [
        Measure(f"{kind.lower()}_at_{k}", f"{kind}@{k}", f"{definition} {k}", unit, lambda r, k=k: float(compute(r, k)))
        for k in HIT_CUTOFFS
        if k <= depth
    ]


def _build_recall_measures(depth: int) -> list[Measure]:
    """Measures of questions with several evidence pages: the share that is found, and whether all are."""
    share = "share of the evidence pages that the first search has among its first"
    every = "first search has all evidence pages among its first"
    return [
        *_build_at_cutoffs("Recall", share, Unit.SCORE, depth, QuestionResult.compute_recall),
        *_build_at_cutoffs("All", every, Unit.SHARE, depth, lambda result, k: result.compute_recall(k) == 1),
    ]


def build_strata(results: Mapping[str, Sequence[QuestionResult]], primary: Measure) -> list[Measure]:
    """The primary measure on each part of the questions, as a measure that does not apply to the others.

    A set of questions without categories, or of one, has no parts of this kind, and so for hops.  The `MAX_CATEGORIES` largest
    categories are told apart; the others are one part.
    """
    some = next(iter(results.values()))
    kinds = {"category": _classify_category(some), "hops": lambda result: result.hops.value}
    return [part for kind, classify in kinds.items() for part in _build_parts(kind, some, classify, primary)]


def build_recalls(results: Mapping[str, Sequence[QuestionResult]]) -> list[Measure]:
    """Recall of lists that were put in order, as M-BEIR has it (UniIR, https://arxiv.org/abs/2311.17136): on all questions, by
    what is text and what is image, and by category, which is the set there. Nothing where no list was.

    It is 1 for a question with any of its right candidates among the first k, however many there are of them, and else 0.
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


def _measure_cost(
    name: str,
    label: str,
    definition: str,
    compute: Callable[[QuestionResult], float | None],
    unit: Unit = Unit.COUNT,
    needs_model: bool = True,
) -> Measure:
    """Of what less is better. Failed rollouts are left out, since one that broke off early would look cheap."""

    def compute_finished(result: QuestionResult) -> float | None:
        return None if result.error else compute(result)

    return Measure(name, label, definition, unit, compute_finished, higher_is_better=False, needs_model=needs_model)


def _divide(count: int, total: int) -> float | None:
    return count / total if total else None


_SEARCHES = {
    "empty_queries": "that ask for nothing, or add nothing to the question",
    "repeated_queries": "whose query it had made before",
    "partial_searches": "that left out parts of a query that would cost more than search.max_query_ms",
}
"""Searches that are for nothing new, or too much, by what `SearchScore` counts of them."""


def build_query_measures() -> list[Measure]:
    """Measures of queries for nothing new, or too much; rollouts without what is counted are left out."""
    return [
        *(
            _measure_cost(
                name,
                name.replace("_", " ").capitalize(),
                f"share of the searches of a rollout {definition}",
                lambda r, name=name: _divide(getattr(r.searches, f"num_{name}"), r.searches.num_searches),
                Unit.RATE,
            )
            for name, definition in _SEARCHES.items()
        ),
        _measure_cost(
            "unreadable_replies",
            "Unreadable replies",
            "share of the replies of a rollout without a readable action",
            lambda r: _divide(r.num_format_errors, r.usage.num_iterations),
            Unit.RATE,
        ),
    ]


def build_effort_measures() -> list[Measure]:
    """Measures of a rollout's cost."""
    success = "turn of the first success over the questions with a success only"
    return [
        _measure_cost(
            "pages_shown", "Pages shown", "distinct pages that all searches show", lambda r: r.count_shown(), needs_model=False
        ),
        _measure_cost("avg_iterations", "Iterations", "turns of the model in a rollout", lambda r: r.usage.num_iterations),
        _measure_cost("iterations_to_success", "Iterations to success", success, lambda r: r.searches.iterations_to_success),
        _measure_cost("num_searches", "Searches", "searches in a rollout", lambda r: r.searches.num_searches),
        _measure_cost("num_completion_tokens", "Tokens", "tokens written in a rollout", lambda r: r.usage.num_completion_tokens),
    ]


def build_tool_measures(tool: str) -> list[Measure]:
    """Measures of a tool: calls in a rollout, failures, and time."""

    def find(result: QuestionResult) -> ToolUse:
        return next((use for use in result.usage.tool_uses if use.tool == tool), ToolUse(tool, 0, 0, 0.0))

    calling = f"seconds of a rollout in which {tool} runs, over those that call it"
    return [
        _measure_cost(f"calls_of_{tool}", f"Calls of {tool}", f"calls of {tool} in a rollout", lambda r: find(r).num_calls),
        _measure_cost(
            f"failed_calls_of_{tool}",
            f"Failed calls of {tool}",
            f"share of the calls of {tool} in a rollout that fail",
            lambda r: _divide(find(r).num_errors, find(r).num_calls),
            Unit.RATE,
        ),
        _measure_cost(
            f"seconds_of_{tool}", f"Seconds of {tool}", calling, lambda r: find(r).seconds if find(r).num_calls else None
        ),
    ]


def build_answer_measures(*, has_judge: bool) -> list[Measure]:
    """Measures of the answers."""
    similar = "similarity of the answer to the best gold variant"
    right = f"answers with ANLS* of at least {RIGHT_ANLS}"
    judged = "what answers are worth to the judge: correct 1, partial .5, incorrect 0; those without a verdict are left out"

    def is_right(result: QuestionResult) -> float | None:
        return None if result.answer.anls is None else float(result.answer.is_right)

    measures = [
        Measure("anls", "ANLS*", similar, Unit.SCORE, lambda r: r.answer.anls, needs_model=True),
        Measure(ANSWER_ACCURACY, "Answer accuracy", right, Unit.SHARE, is_right, needs_model=True),
        Measure("semantic_accuracy", "Semantic accuracy", judged, Unit.RATE, lambda r: r.answer.semantic, needs_model=True),
    ]
    return measures if has_judge else measures[:-1]


def build_citation_measures() -> list[Measure]:
    """Precision, recall and F1 of what the answer cites, by page and by document, as DRAG and MADQA score it."""
    return [
        Measure(
            f"{kind}_citation_{part}",
            f"{kind.capitalize()} citation {label}",
            f"{label} of the cited {kind}s, 0 when none is cited",
            Unit.SCORE,
            lambda r, kind=kind, part=part: getattr(getattr(r.answer, f"{kind}_citation"), part),
            needs_model=True,
        )
        for kind in ("page", "document")
        for part, label in (("precision", "precision"), ("recall", "recall"), ("f1", "F1"))
    ]
