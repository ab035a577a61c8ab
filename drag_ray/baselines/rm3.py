"""RM3: the question, expanded by the words that set its best pages apart.

The relevance model is RM1 of Lavrenko and Croft (Relevance-Based Language Models, SIGIR 2001), mixed with the question as
by Abdul-Jaleel et al. (UMass at TREC 2004: Novelty and HARD). As in Anserini, BM25 scores stand for the query likelihood.
RM3 reads the pages that the question finds, so it sees the index, as a search agent does; it never sees the evidence.
"""

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from drag_ray.baselines.baseline import BaselineContext, TermBaseline, WriteAdditions, build_query_reply
from drag_ray.baselines.weights import WordForms, write_weights
from drag_ray.engine.generate import GenerateFn, Request
from drag_ray.types import Evidence

if TYPE_CHECKING:
    from drag_ray.search.searcher import Searcher

_NUM_PAGES = 10
"""Best pages for the question that are treated as relevant: `fb_docs` of Anserini and Pyserini, as are the defaults below."""
_NUM_TERMS = 10
"""Terms of these pages that join the query (`fb_terms`)."""
_QUESTION_SHARE = 0.5
"""Of the question's own terms in the query's weights (`original_query_weight`)."""
_MAX_PAGE_SHARE = 0.1
"""Terms in a larger share of all pages do not join the query."""
_MIN_TERM_CHARS, _MAX_TERM_CHARS = 2, 20
_CACHED_PAGES = 10_000


class Rm3(TermBaseline):
    """Searches for the question, expanded."""

    name = "rm3"
    summary = "the question, expanded by terms of the pages that it finds: it reads the index, and never the evidence"
    proposes = True

    def build_reply(self, context: BaselineContext) -> GenerateFn:
        """Replies that search for the terms of the relevance model."""
        relevance_model = RelevanceModel(context.searcher)
        return build_query_reply(lambda question: write_weights(relevance_model.expand(question)), context.agent)

    def build_additions(self, context: BaselineContext) -> WriteAdditions:
        """The terms that join the question, in words of the pages that it finds."""
        searcher = context.searcher
        relevance_model = RelevanceModel(searcher)

        async def write(question: str, request: Request) -> str:
            forms = WordForms(searcher.analyze)
            for hit in searcher.search(question, _NUM_PAGES):
                forms.add(searcher.text(hit))
            own = set(searcher.analyze(question))
            terms = relevance_model.expand(question)
            return " ".join(forms.write(term) for term in sorted(terms, key=lambda term: -terms[term]) if term not in own)

        return write


class RelevanceModel:
    """Expands questions over one index."""

    def __init__(self, searcher: "Searcher") -> None:
        self._searcher = searcher
        self._max_doc_freq = _MAX_PAGE_SHARE * searcher.num_pages
        self._term_shares = lru_cache(_CACHED_PAGES)(self._compute_term_shares)

    def expand(self, question: str) -> dict[str, float]:
        """Index terms with weights that sum to 1; the question's own terms alone if it finds no page, nothing if it has none."""
        own = _normalise(Counter(self._searcher.analyze(question)))
        feedback = self._compute_feedback(question)
        if not feedback:
            return own
        share = _QUESTION_SHARE
        return {term: share * own.get(term, 0.0) + (1 - share) * feedback.get(term, 0.0) for term in own | feedback}

    def _compute_feedback(self, question: str) -> dict[str, float]:
        """RM1 over the best pages: the sum of each term's share of a page times the page's score, cut to the heaviest terms."""
        weights: dict[str, float] = {}
        for hit in self._searcher.search(question, _NUM_PAGES):
            for term, share in self._term_shares(hit.file, hit.page_number).items():
                weights[term] = weights.get(term, 0.0) + share * hit.score
        ordered = sorted(weights.items(), key=lambda item: (-item[1], item[0]))
        return _normalise(dict(ordered[:_NUM_TERMS]))

    def _compute_term_shares(self, file: str, page_number: int) -> dict[str, float]:
        """The terms of a page that may join a query, with their shares of these terms' occurrences."""
        counts = Counter(self._searcher.analyze(self._searcher.page(Evidence(file, page_number)).text))
        return _normalise({term: count for term, count in counts.items() if self._may_join(term)})

    def _may_join(self, term: str) -> bool:
        fits = _MIN_TERM_CHARS <= len(term) <= _MAX_TERM_CHARS and term.isalnum()
        return fits and self._searcher.doc_freq(term) <= self._max_doc_freq


def _normalise(weights: Mapping[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return {term: weight / total for term, weight in weights.items()} if total else {}
