"""The measures of a rollout as a whole: what it costs, how it asks, and what it answers."""

from collections.abc import Callable, Iterable

from drag_ray.agent.answers import RIGHT_ANLS
from drag_ray.evaluate.criterion import ANSWER_ACCURACY
from drag_ray.evaluate.measure import Measure, Unit
from drag_ray.evaluate.question_result import QuestionResult, ToolUse


def build_query_measures() -> list[Measure]:
    """Measures of queries for nothing new, or too much. Failed rollouts are left out, and those without what is counted."""

    def measure(
        name: str, label: str, definition: str, count: Callable[[QuestionResult], int], total: Callable[[QuestionResult], int]
    ) -> Measure:
        return Measure(
            name,
            label,
            definition,
            Unit.RATE,
            lambda r: None if r.error or not total(r) else count(r) / total(r),
            higher_is_better=False,
            needs_model=True,
        )

    return [
        measure(
            "empty_queries",
            "Empty queries",
            "share of the searches of a rollout that ask for nothing, or add nothing to the question",
            lambda r: r.num_empty_queries,
            lambda r: r.num_searches,
        ),
        measure(
            "repeated_queries",
            "Repeated queries",
            "share of the searches of a rollout whose query it had made before",
            lambda r: r.num_repeated_queries,
            lambda r: r.num_searches,
        ),
        measure(
            "partial_searches",
            "Partial searches",
            "share of the searches of a rollout that left out parts of a query that would cost more than search.max_query_ms",
            lambda r: r.num_partial_searches,
            lambda r: r.num_searches,
        ),
        measure(
            "unreadable_replies",
            "Unreadable replies",
            "share of the replies of a rollout without a readable action",
            lambda r: r.num_format_errors,
            lambda r: r.num_iterations,
        ),
    ]


def build_effort_measures() -> list[Measure]:
    """Measures of a rollout's cost. Failed rollouts are left out here, since one that broke off early would look cheap."""

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
        measure(
            "num_completion_tokens",
            "Tokens",
            "tokens written in a rollout",
            lambda r: r.num_completion_tokens,
        ),
    ]


def build_tool_measures(tools: Iterable[str]) -> list[Measure]:
    """Measures of tools: calls in a rollout, failures, and time. Failed rollouts are left out.

    Args:
        tools: other than search, that a rollout of some policy called.
    """
    measures = []
    for tool in tools:
        calls = Measure(
            f"calls_of_{tool}",
            f"Calls of {tool}",
            f"calls of {tool} in a rollout",
            Unit.COUNT,
            lambda r, tool=tool: None if r.error else float(_find_use(r, tool).num_calls),
            higher_is_better=False,
            needs_model=True,
        )
        failures = Measure(
            f"failed_calls_of_{tool}",
            f"Failed calls of {tool}",
            f"share of the calls of {tool} in a rollout that fail",
            Unit.RATE,
            lambda r, tool=tool: (
                _find_use(r, tool).num_errors / _find_use(r, tool).num_calls
                if not r.error and _find_use(r, tool).num_calls
                else None
            ),
            higher_is_better=False,
            needs_model=True,
        )
        seconds = Measure(
            f"seconds_of_{tool}",
            f"Seconds of {tool}",
            f"seconds of a rollout in which {tool} runs, over those that call it",
            Unit.COUNT,
            lambda r, tool=tool: _find_use(r, tool).seconds if not r.error and _find_use(r, tool).num_calls else None,
            higher_is_better=False,
            needs_model=True,
        )
        measures += [calls, failures, seconds]
    return measures


def _find_use(result: QuestionResult, tool: str) -> ToolUse:
    return next((use for use in result.tool_uses if use.tool == tool), ToolUse(tool, 0, 0, 0.0))


def build_answer_measures(*, has_judge: bool) -> list[Measure]:
    """Measures of the answers."""
    semantic = Measure(
        "semantic_accuracy",
        "Semantic accuracy",
        "what answers are worth to the judge: correct 1, partial .5, incorrect 0; those without a verdict are left out",
        Unit.RATE,
        lambda r: r.semantic,
        needs_model=True,
    )
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
            ANSWER_ACCURACY,
            "Answer accuracy",
            f"answers with ANLS* of at least {RIGHT_ANLS}",
            Unit.SHARE,
            lambda r: None if r.anls is None else float(r.is_right),
            needs_model=True,
        ),
        *([semantic] if has_judge else []),
    ]


def build_citation_measures() -> list[Measure]:
    """Precision, recall and F1 of what the answer cites, by page and by document, as DRAG and MADQA score it."""
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
