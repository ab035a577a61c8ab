"""Words of the pages that answer similar training questions: relevance feedback without a look at the question's own pages.

Questions are often asked in a few forms ("What are the treatments for ...?"), and the pages that answer one form share words
("therapy", "surgery") that say nothing of the subject. Rocchio's feedback (1971) takes the terms that set relevant pages apart
from the collection; here the relevant pages are the evidence of training questions that are put alike. That needs no model, so
it is what a user can have without training one; and its draws show a policy words that it would not have thought of.
"""

import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache, lru_cache
from math import log
from typing import TYPE_CHECKING, Self

from drag_ray.baselines.baseline import BaselineContext, Sources, TermBaseline, WriteAdditions, build_query_reply
from drag_ray.baselines.question_words import QuestionWords
from drag_ray.baselines.weights import WordForms, expand_terms, write_weights, write_words
from drag_ray.engine.generate import GenerateFn, Request
from drag_ray.types import Question

if TYPE_CHECKING:
    from drag_ray.search.searcher import Searcher

_NUM_NEIGHBOURS = 64
"""Training questions put most alike whose pages are looked at."""
_NUM_TERMS = 8
"""Terms of these pages that join a question."""
_NUM_CANDIDATES = 16
"""Terms that proposals for a collection draw from."""
_LEAST_PAGES = 3
"""A term of fewer of the neighbours' pages is there by chance."""
QUESTION_WEIGHT = 2.0
"""Of a word of the question relative to an added one."""
MAX_QUESTIONS = 20_000
"""Training questions that are compared, at most; the pages of all of them are read."""


@dataclass(frozen=True)
class Neighbours(TermBaseline):
    """Searches for the question and the terms of its neighbours' pages."""

    name = "neighbours"
    summary = "the question, expanded by terms that set the pages of similar training questions apart; no model writes"
    proposes = True
    draws = True

    questions: tuple[Question, ...] = ()
    """for training, with their evidence"""

    @classmethod
    def prepare(cls, sources: Sources) -> Self:
        """With the run's training questions."""
        return cls(tuple(sources.draw_questions(MAX_QUESTIONS)))

    def build_reply(self, context: BaselineContext) -> GenerateFn:
        """Replies that search for the question and the strongest terms."""
        feedback, analyze = NeighbourFeedback(self.questions, context.searcher), context.searcher.analyze

        def write(question: str) -> str:
            terms = list(feedback.weigh_terms(question))[:_NUM_TERMS]
            return write_weights(expand_terms(analyze(question), QUESTION_WEIGHT, dict.fromkeys(terms, 1.0)))

        return build_query_reply(write, context.agent)

    def build_additions(self, context: BaselineContext) -> WriteAdditions:
        """Some of the terms in words (see `draw_terms`)."""
        feedback = NeighbourFeedback(self.questions, context.searcher)

        async def write(question: str, request: Request) -> str:
            weights = dict(list(feedback.weigh_terms(question).items())[:_NUM_CANDIDATES])
            terms = draw_terms(weights, random.Random(request.seed))
            return write_words({feedback.forms.write(term): count for term, count in terms.items()})

        return write


def draw_terms(weights: dict[str, float], random_numbers: random.Random) -> dict[str, int]:
    """Some of the heaviest terms, heaviest first, with 1 or 2 for each as what it is to count.

    Where to cut is drawn, from 3 to all of them, the shorter the likelier; of what is left each is left out by a chance of a
    quarter and counts double by another. What draws share, and in their order, is what a policy learns first.
    """
    num_kept = 3 + int(max(len(weights) - 3, 0) * random_numbers.random() ** 2)
    return {
        term: 2 if random_numbers.random() < 1 / 4 else 1 for term in list(weights)[:num_kept] if random_numbers.random() >= 1 / 4
    }


class NeighbourFeedback:
    """Terms that set the pages of similar questions apart."""

    def __init__(self, questions: tuple[Question, ...], searcher: "Searcher") -> None:
        self.forms = WordForms(searcher.analyze)
        self._searcher = searcher
        self._questions = questions
        self._words = QuestionWords([question.question for question in questions])
        self._page_terms = {page: frozenset[str]() for question in questions for page in question.evidence}
        for page in self._page_terms:
            self._page_terms[page] = frozenset(self.forms.add(searcher.text(page)))
        self._doc_freq = cache(searcher.doc_freq)
        self._files_of: defaultdict[str, set[str]] = defaultdict(set)
        for question in questions:
            self._files_of[question.question].update(page.file for page in question.evidence)
        self.weigh_terms = lru_cache(4096)(self._weigh_terms)

    def find_neighbours(self, question: str) -> list[Question]:
        """The training questions whose wording is most like a question's, by the Jaccard index of their common words.

        Nothing that is asked of the same files as the question itself, should it be one of training, is among them: at serving
        time nothing is known of them either.
        """
        import numpy as np

        similarity = self._words.compare(question)
        own = self._files_of.get(question, set())
        neighbours: list[Question] = []
        for row in np.argsort(-similarity, kind="stable"):
            if similarity[row] <= 0 or len(neighbours) == _NUM_NEIGHBOURS:
                break
            if own.isdisjoint(page.file for page in self._questions[row].evidence):
                neighbours.append(self._questions[row])
        return neighbours

    def _weigh_terms(self, question: str) -> dict[str, float]:
        """Terms of the neighbours' pages with their weights, the heaviest first.

        A weight is the number of these pages that hold the term, times the logarithm of its lift: their share, divided by the
        share of all pages that hold it.
        """
        pages = {page for neighbour in self.find_neighbours(question) for page in neighbour.evidence}
        counts = Counter(term for page in pages for term in self._page_terms[page])
        weights: dict[str, float] = {}
        for term, count in counts.items():
            if count >= _LEAST_PAGES:
                lift = log(count / len(pages) * self._searcher.num_pages / max(self._doc_freq(term), 1))
                if lift > 0:
                    weights[term] = count * lift
        return dict(sorted(weights.items(), key=lambda item: (-item[1], item[0])))
