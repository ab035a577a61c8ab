"""The measures of a rollout as a whole: what it costs, how it asks, and what it answers."""

from collections.abc import Callable, Iterable

from drag_ray.agent.answers import RIGHT_ANLS
from drag_ray.evaluate.measure import ANSWER_ACCURACY, Measure, Unit
from drag_ray.evaluate.question_result import QuestionResult, ToolUse


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


def build_query_measures() -> list[Measure]:
    """Measures of queries for nothing new, or too much; rollouts without what is counted are left out."""
    searches = "share of the searches of a rollout"
    return [
        _measure_cost(
            "empty_queries",
            "Empty queries",
            f"{searches} that ask for nothing, or add nothing to the question",
            lambda r: _divide(r.searches.num_empty_queries, r.searches.num_searches),
            Unit.RATE,
        ),
        _measure_cost(
            "repeated_queries",
            "Repeated queries",
            f"{searches} whose query it had made before",
            lambda r: _divide(r.searches.num_repeated_queries, r.searches.num_searches),
            Unit.RATE,
        ),
        _measure_cost(
            "partial_searches",
            "Partial searches",
            f"{searches} that left out parts of a query that would cost more than search.max_query_ms",
            lambda r: _divide(r.searches.num_partial_searches, r.searches.num_searches),
            Unit.RATE,
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


def build_tool_measures(tools: Iterable[str]) -> list[Measure]:
    """Measures of tools: calls in a rollout, failures, and time.

    Args:
        tools: other than search, that a rollout of some policy called.
    """
    return [measure for tool in tools for measure in _measure_tool(tool)]


def _measure_tool(tool: str) -> list[Measure]:
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
