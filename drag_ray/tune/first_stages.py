"""First stages: the ways in which an index can be searched for a question, and the ranks at which they find its evidence.

A question is searched three times at most, by its words in one way or two and by its vector. All else is fused from that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Literal, NamedTuple

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import ExpandedQuestion, PageIndex
from drag_ray.agent.keywords import WordsName
from drag_ray.agent.retrieval import open_dense
from drag_ray.agent.tasks.find_page import to_search
from drag_ray.search import vectors
from drag_ray.search.dense import FUSED_DEPTH, fuse
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Hit, Hits, Question

DENSE_WEIGHTS = (0.2, 0.35, 0.5, 0.65, 0.8)
"""Weights of the vectors that are tried beside the agent's own, or where it has none beside a fusion by ranks."""
UNION = "union"
"""The best pages by words and by vectors in turn: what a reader would be given without a fusion. It can be no agent's search."""


class FirstStage(NamedTuple):
    """A way to search. Vectors alone are of the whole question whatever `words`; `dense_weight` says something of both alone."""

    retrieval: Literal["bm25", "dense", "hybrid", "union"]
    words: WordsName = "all"
    dense_weight: float | None = None

    def describe(self) -> str:
        """Its name in tables and sentences."""
        words = {"key": "key words", "all": "all words"}[self.words]
        if self.retrieval == "hybrid":
            return f"hybrid, {words}, " + ("ranks" if self.dense_weight is None else f"vectors {self.dense_weight:g}")
        return {"bm25": words, "dense": "dense", UNION: f"union, {words}"}[self.retrieval]


def find_configured(agent: AgentConfig) -> FirstStage:
    """The search of an agent as its options say."""
    words: WordsName = agent.question_words if agent.expands else "all"
    return FirstStage(agent.retrieval, words, agent.dense_weight if agent.retrieval == "hybrid" else None)


def list_first_stages(agent: AgentConfig, has_vectors: bool) -> list[FirstStage]:
    """All that an index allows, the simpler ones first. Words of a question are chosen where the agent expands it."""
    some: tuple[WordsName, ...] = ("key", "all") if agent.expands else ("all",)
    by_words = [FirstStage("bm25", words) for words in some]
    if not has_vectors:
        return by_words
    weights = dict.fromkeys([agent.dense_weight, *DENSE_WEIGHTS])
    fused = [FirstStage("hybrid", words, weight) for words in some for weight in weights]
    dense = [FirstStage("dense", words) for words in some]
    return [*by_words, *dense, *fused, *(FirstStage(UNION, words) for words in some)]


@dataclass(frozen=True)
class RankEvidence:
    """From questions to the ranks of their evidence by each first stage, none where it is not among the first `FUSED_DEPTH`."""

    index_dir: Path
    agent: AgentConfig
    stages: Sequence[FirstStage]

    def __call__(self, questions: Sequence[Question]) -> list[list[tuple[int, ...]]]:
        """The ranks, of each question in the order of `stages`.

        Raises:
            SearchIndexError: the index or its vectors are damaged, or the vectors of another model.
            ConfigError: their model is gone.
        """
        searcher = Searcher(self.index_dir / "search_index")
        dense = None
        if any(stage.retrieval == "dense" for stage in self.stages):
            dense = open_dense(searcher, self.index_dir / vectors.DIR_NAME)
            dense.prepare([question.question for question in questions])
        all_words: set[WordsName] = {stage.words for stage in self.stages}
        found: list[list[tuple[int, ...]]] = []
        for question in questions:
            by_words = {words: self._search(searcher, question, words) for words in all_words}
            by_vectors = dense.search(question.question, FUSED_DEPTH) if dense else Hits()
            rankings = (rank_pages(stage, by_words[stage.words], by_vectors) for stage in self.stages)
            found.append([find_ranks(pages, question.evidence) for pages in rankings])
        return found

    def _search(self, index: PageIndex, question: Question, words: WordsName) -> Hits:
        asked = to_search(self.agent.model_copy(update={"question_words": words}), question)
        if isinstance(asked, ExpandedQuestion):
            return index.search_expanded(asked.question, asked.addition, asked.weight, FUSED_DEPTH, asked.words)
        return index.search(asked, FUSED_DEPTH)


def rank_pages(stage: FirstStage, by_words: Sequence[Hit], by_vectors: Sequence[Hit]) -> list[Evidence]:
    """The pages of a first stage, best first, of what words and vectors find."""
    if stage.retrieval == UNION:
        taken = (hit for pair in zip_longest(by_words, by_vectors) for hit in pair if hit)
        return list(dict.fromkeys(hit.page for hit in taken))[:FUSED_DEPTH]
    if stage.retrieval == "hybrid":
        return [hit.page for hit in fuse(by_words, by_vectors, stage.dense_weight, FUSED_DEPTH)[:FUSED_DEPTH]]
    return [hit.page for hit in (by_words if stage.retrieval == "bm25" else by_vectors)]


def find_ranks(pages: Iterable[Evidence], evidence: Sequence[Evidence]) -> tuple[int, ...]:
    """The ranks from 1 of the evidence among pages, ascending."""
    wanted = set(evidence)
    return tuple(rank for rank, page in enumerate(pages, start=1) if page in wanted)
