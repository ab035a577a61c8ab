"""The result of one policy on one question: the record, and what follows from it."""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from drag_ray.agent.answers import NO_CITATION, RIGHT_ANLS, CitationScore
from drag_ray.schemas import flatten, from_row, group, name_paths
from drag_ray.types import Evidence

NO_TRAJECTORY = "no trajectory"


class Hops(StrEnum):
    """The distance between a question's evidence pages, as MADQA (https://arxiv.org/abs/2603.12180) tells its questions apart."""

    SINGLE = "single"
    """One page."""
    CROSS_PAGE = "cross_page"
    """Several pages of one document."""
    CROSS_DOCUMENT = "cross_document"
    """Pages of several documents."""
    UNKNOWN = "unknown"
    """No page is known: its answer alone is judged."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The calls of one tool in a rollout: how many, how many of them failed, and their seconds together."""

    tool: str
    num_calls: int
    num_errors: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RolloutUsage:
    """The cost of a rollout. `duration_s` is from its start to its end, beside all others of its engine; `tool_uses` has the
    tools other than search that were called, by name."""

    num_iterations: int = 0
    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    duration_s: float = 0.0
    tool_uses: tuple[ToolUse, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchScore:
    """The searches of a rollout, and what they found.

    Ranks are 1-based, of the best evidence page, None beyond `depth`; `evidence_ranks` are those of all evidence pages that the
    first search has within `depth`, in order; `sequence_rank` is that in the rollout's page sequence (see `PageSequence`).
    `num_partial_searches` counts those that left out costly parts of their query (`search.max_query_ms`).
    `num_empty_queries` counts the searches that asked for nothing, or added nothing to the question, `num_repeated_queries` those
    with a query that the rollout had made before, whatever its spaces and case.
    `shown_by_turn` counts the distinct pages shown up to each turn.  `iterations_to_success` is the 1-based turn of the first
    search that showed evidence within `top_k`, None without one.
    A rollout in the query mode `expand` that did not search `falls_back` on the question: it has found what that finds.
    """

    num_searches: int = 0
    num_failed_searches: int = 0
    num_partial_searches: int = 0
    num_empty_queries: int = 0
    num_repeated_queries: int = 0
    falls_back: bool = False
    iterations_to_success: int | None = None
    first_search_rank: int | None = None
    evidence_ranks: tuple[int, ...] = ()
    best_rank: int | None = None
    sequence_rank: int | None = None
    shown_by_turn: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerScore:
    """The worth of an answer.

    `anls` is None when the question has no gold answer; `semantic` is what the answer is worth to the judge, None without a judge
    and where it `is_unjudged`: the judge gave no verdict that can be read.
    """

    anls: float | None = None
    semantic: float | None = None
    is_unjudged: bool = False
    page_citation: CitationScore = NO_CITATION
    document_citation: CitationScore = NO_CITATION

    @property
    def is_right(self) -> bool:
        """True if the answer is taken for right; False where no answer is known."""
        return self.anls is not None and self.anls >= RIGHT_ANLS


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The values of one policy on one question; those that are not given say that nothing was found or done.

    `question_rank` is that of the question searched as it stands, if the rollout `knows_question`.  `file` is the document of the
    first of its `num_evidence` pages, empty where none is known, `group` and `category` the question's.
    `modalities` are those of the query and the candidates of a list that was put in order, empty in other tasks.
    `task` is what was asked of the policy, empty without a rollout.
    A rollout with an `error` has found nothing: every quality value is 0 or None, whatever it did before it failed.
    """

    question_id: str
    file: str
    group: str
    category: str
    hops: Hops
    num_evidence: int
    top_k: int
    depth: int
    error: str = ""
    num_format_errors: int = 0
    knows_question: bool = False
    question_rank: int | None = None
    modalities: str = ""
    task: str = ""
    usage: RolloutUsage = RolloutUsage()
    searches: SearchScore = SearchScore()
    answer: AnswerScore = AnswerScore()

    @property
    def is_found(self) -> bool:
        """True if any search showed an evidence page within `top_k`."""
        return self.searches.iterations_to_success is not None

    @property
    def is_first_hit(self) -> bool:
        """True if the first search showed an evidence page within `top_k`."""
        return self.is_hit_at(self.top_k)

    def is_hit_at(self, k: int) -> bool:
        """True if the first search has an evidence page among its first `k`."""
        return is_within(self.searches.first_search_rank, k)

    @property
    def reciprocal_rank(self) -> float:
        """1 / rank of the evidence in the first search, 0 when it is not within `depth`."""
        return compute_reciprocal_rank(self.searches.first_search_rank)

    def compute_recall(self, k: int) -> float:
        """The share of the evidence pages that are among the first `k` of the first search."""
        return sum(rank <= k for rank in self.searches.evidence_ranks) / self.num_evidence

    def compute_ndcg(self, k: int) -> float:
        """nDCG@k of the first search (Jarvelin and Kekalainen, 2002), every evidence page a gain of 1."""
        gains = (1 / math.log2(1 + rank) for rank in self.searches.evidence_ranks if rank <= k)
        ideal = (1 / math.log2(1 + rank) for rank in range(1, min(k, self.num_evidence) + 1))
        return sum(gains) / sum(ideal)

    def is_met_within(self, num_pages: int) -> bool:
        """True if an evidence page is among the first `num_pages` of the page sequence."""
        return is_within(self.searches.sequence_rank, num_pages)

    def count_shown(self, turn: int = 0) -> int:
        """The distinct pages shown up to `turn`, by the whole rollout for 0."""
        shown = self.searches.shown_by_turn[:turn] if turn else self.searches.shown_by_turn
        return shown[-1] if shown else 0

    def count_compared(self, turn: int = 0) -> int:
        """The pages up to which others are compared with what this rollout has shown up to `turn`, as `count_shown`.

        At least `top_k`, so that who shows fewer has no advantage of it; at most `depth`, where rankings end.
        """
        return min(self.depth, max(self.top_k, self.count_shown(turn)))


_PATHS = {**name_paths("usage", RolloutUsage), **name_paths("searches", SearchScore), **name_paths("answer", AnswerScore)}


def to_line(result: QuestionResult) -> dict[str, Any]:
    """The values of a result side by side, as in a line of `results.jsonl`."""
    return flatten(asdict(result), _PATHS)


def to_result(row: Mapping[str, Any]) -> QuestionResult:
    """The result of one line of `results.jsonl`.

    Raises:
        KeyError: a field of several values is missing.
        TypeError: another field is missing, or is none.
    """
    return from_row(QuestionResult, group(row, _PATHS, QuestionResult))


def classify_hops(evidence: Collection[Evidence]) -> Hops:
    """The distance between these pages."""
    if not evidence:
        return Hops.UNKNOWN
    if len(set(evidence)) == 1:
        return Hops.SINGLE
    return Hops.CROSS_PAGE if len({page.file for page in evidence}) == 1 else Hops.CROSS_DOCUMENT


def is_within(rank: int | None, k: int) -> bool:
    """True if a rank, None for absent, is among the first `k`."""
    return rank is not None and rank <= k


def compute_reciprocal_rank(rank: int | None) -> float:
    """1 / rank, 0 for absent."""
    return 1.0 / rank if rank else 0.0
