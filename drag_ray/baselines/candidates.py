"""Searches to choose among for a question, and what is known of each before anyone knows the right page."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import fsum
from statistics import fmean
from typing import Any

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.keywords import choose_words
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.baselines.weights import expand_terms
from drag_ray.engine.generate import Message
from drag_ray.search.config import SYNTAX_HELP
from drag_ray.search.fusion import fuse_rankings
from drag_ray.search.predictors import (
    compute_clarity,
    compute_coverage,
    compute_gap,
    compute_idf,
    compute_jaccard,
    compute_nqc,
    compute_rbo,
    compute_wig,
)
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Hit

_KEPT_TERMS = 2**17
_RANKING_FEATURES = (
    *("top_score", "gap_2", "gap_k", "mean_score", "nqc", "wig", "clarity", "num_terms", "mean_idf", "coverage"),
)
LIST_FEATURES = (
    *(f"question_{name}" for name in _RANKING_FEATURES),
    *_RANKING_FEATURES,
    *("num_written", "written_idf", "shared_words", "new_coverage", "question_new_coverage"),
    *("rank_of_first", "score_of_first", "rbo", "jaccard", "is_fused"),
)
"""What is computed of every candidate (see `search.predictors`).

Those of `question_` are of the question's own list, the same for all of its candidates; then come the same of what is searched
for the candidate: its score at rank 1 and the mean of all (both by what its terms weigh together), the gaps to rank 2 and to the
last rank, NQC, WIG, clarity, its terms and their mean IDF, and the share of the question's terms that the first page holds.
Of the words that the policy wrote: how many, their mean IDF, the share that the question has too, and of the others the share on
the first page that they find and on the first one that the question finds.
Of both lists: at which rank the question's first page is found (one beyond the depth where it is not), the score that the
question gives to the first page found, by its best (0 where it does not find it), and the overlaps of what is shown with the
question's list, jaccard of the first `top_k`."""
REWARD_FEATURE = "reward"
"""The reward of the candidate's reply less that of a reply which searches for the question, by a reward model that reads both."""

ScoreFn = Callable[[Sequence[Message], Sequence[str], Sequence[dict[str, Any]]], list[float]]
"""From a prompt, replies to it and the tools of the prompt to the reward of each reply, as `RewardModel.score`."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A search to choose.

    Attributes:
        query: what the policy wrote.
        found: what that finds.
        shown: what is shown if it is chosen: the same, or fused with what the question finds.
    """

    query: str
    found: tuple[Hit, ...]
    shown: tuple[Hit, ...]

    @property
    def is_fused(self) -> bool:
        return self.shown is not self.found


class CandidateReader:
    """Searches and describes the candidates of questions. Safe to share between threads.

    Args:
        searcher: the index.
        agent: whose way to search it is, whose depth is looked at and whose top_k is shown.
        build_score: makes the rewards, when they are first needed; without it there is no such feature.

    Attributes:
        depth: how far lists are looked at.
    """

    def __init__(self, searcher: Searcher, agent: AgentConfig, build_score: Callable[[], ScoreFn] | None = None) -> None:
        self.depth = agent.depth
        self._searcher = searcher
        self._agent = agent
        self._build_score = build_score
        self._prompts = Prompts(agent, SYNTAX_HELP[searcher.record.syntax])
        self._doc_freq = lru_cache(_KEPT_TERMS)(searcher.doc_freq)  # who asks an endpoint chooses the terms
        self._count_terms = lru_cache(4096)(self._read_terms)

    @staticmethod
    def list_features(*, has_rewards: bool) -> tuple[str, ...]:
        """The names of what `compute_features` computes, with or without a reward model."""
        return (*LIST_FEATURES, REWARD_FEATURE) if has_rewards else LIST_FEATURES

    def search_question(self, question: str) -> tuple[Hit, ...]:
        """What the question itself finds."""
        return self._search(question, self.repeat(question))

    def repeat(self, question: str) -> str:
        """The query that finds what the question itself finds: nothing added, or the question."""
        return "" if self._agent.expands else question

    def search(self, question: str, query: str) -> Candidate:
        """What the policy's query for a question finds."""
        found = self._search(question, query)
        return Candidate(query, found, found)

    def fuse(self, asked: Sequence[Hit], candidate: Candidate) -> Candidate:
        """The same query, its list fused with the question's by reciprocal rank."""
        fused = fuse_rankings([asked, candidate.found])[: self.depth]
        return Candidate(candidate.query, candidate.found, tuple(fused))

    def compute_features(self, question: str, asked: Sequence[Hit], candidates: Sequence[Candidate]) -> list[list[float]]:
        """The features of each candidate, in the order of `list_features`.

        Args:
            question: the question.
            asked: what it finds itself.
            candidates: what else could be searched.
        """
        if not candidates:
            return []
        words = set(self._searcher.analyze(question))
        own = self._describe_list(asked, self._weigh(question, self.repeat(question)), words)
        queries = {each.query: each.found for each in candidates}
        described = {query: self._describe_list(found, self._weigh(question, query), words) for query, found in queries.items()}
        rows = [[*own, *described[each.query], *self._describe_choice(asked, each, words)] for each in candidates]
        if self._build_score:
            rewards = self._compute_rewards(question, [candidate.query for candidate in candidates])
            return [[*row, reward] for row, reward in zip(rows, rewards, strict=True)]
        return rows

    def _compute_rewards(self, question: str, queries: Sequence[str]) -> list[float]:
        protocol = get_protocol(self._agent.protocol)
        replies = [protocol.render_search(query) for query in (self.repeat(question), *queries)]
        of_question, *rewards = self._score(self._prompts.opening(question), replies, self._prompts.shown_functions)
        return [reward - of_question for reward in rewards]

    @cached_property
    def _score(self) -> ScoreFn:
        assert self._build_score, "rewards need what makes them"
        return self._build_score()

    def _search(self, question: str, query: str) -> tuple[Hit, ...]:
        agent = self._agent
        if agent.expands:
            words = choose_words(question, agent.question_words)
            return tuple(self._searcher.search_expanded(question, query, agent.question_weight, agent.depth, words))
        return tuple(self._searcher.search(query, agent.depth))

    def _weigh(self, question: str, query: str) -> dict[str, float]:
        """The terms that are searched, with their weights."""
        weights = self._searcher.read_additions(query)
        if self._agent.expands:
            words = choose_words(question, self._agent.question_words)
            return expand_terms(self._searcher.analyze(words), self._agent.question_weight, weights)
        return weights

    def _describe_list(self, hits: Sequence[Hit], weights: dict[str, float], words: set[str]) -> list[float]:
        """What `_RANKING_FEATURES` name; `words` are those of the question."""
        scores = [hit.score for hit in hits]
        total = fsum(weight * self._idf(term) for term, weight in weights.items())
        best, mean = (scores[0], fmean(scores)) if scores and total > 0 else (0.0, 0.0)
        return [
            best / (total or 1.0),
            compute_gap(scores, 2),
            compute_gap(scores, self.depth),
            mean / (total or 1.0),
            compute_nqc(scores, total),
            compute_wig(scores, len(weights)),
            compute_clarity([self._count_terms(*_name_page(hit)) for hit in hits], self._doc_freq),
            float(len(weights)),
            self._mean_idf(weights),
            compute_coverage(words, self._read_first(hits)),
        ]

    def _describe_choice(self, asked: Sequence[Hit], candidate: Candidate, words: set[str]) -> list[float]:
        """The features of one candidate beside its list's; `words` are those of the question."""
        written = self._searcher.read_additions(candidate.query)
        new = written.keys() - words
        found, shown, known = ([_name_page(hit) for hit in hits] for hits in (candidate.found, candidate.shown, asked))
        scores = {page: hit.score for page, hit in zip(known, asked, strict=True)}
        return [
            float(len(written)),
            self._mean_idf(written),
            compute_coverage(written, words),
            compute_coverage(new, self._read_first(candidate.found)),
            compute_coverage(new, self._read_first(asked)),
            float(found.index(known[0]) + 1 if known and known[0] in found else self.depth + 1),
            scores.get(found[0], 0.0) / asked[0].score if asked and found else 0.0,
            compute_rbo(shown, known),
            compute_jaccard(shown, known, self._agent.top_k),
            float(candidate.is_fused),
        ]

    def _read_first(self, hits: Sequence[Hit]) -> Counter[str]:
        """The terms of the first page of a list."""
        return self._count_terms(*_name_page(hits[0])) if hits else Counter()

    def _mean_idf(self, weights: dict[str, float]) -> float:
        return fmean(self._idf(term) for term in weights) if weights else 0.0

    def _idf(self, term: str) -> float:
        return compute_idf(self._doc_freq(term), self._searcher.num_pages)

    def _read_terms(self, file: str, page_number: int) -> Counter[str]:
        return Counter(self._searcher.analyze(self._searcher.text(Evidence(file, page_number))))


def _name_page(hit: Hit) -> tuple[str, int]:
    return hit.file, hit.page_number
