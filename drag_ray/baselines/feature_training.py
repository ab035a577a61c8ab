"""Learns the model of `features` from the training questions."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

from drag_ray.baselines.feature_model import FeatureModel, QuestionKind
from drag_ray.baselines.page_features import (
    ANY_KIND,
    Floats,
    PageTerms,
    choose_kind_terms,
    compute_features,
    index_of,
    standardise,
)
from drag_ray.baselines.question_words import QuestionWords, find_kinds
from drag_ray.search.config import Factors
from drag_ray.types import Hits, Question

if TYPE_CHECKING:
    from drag_ray.agent.environment import PageSearcher
    from drag_ray.search.searcher import Searcher

_logger = logging.getLogger(__name__)

FEATURES_ALONE = Factors(1.0, 0.0)
_LEAST_QUESTIONS = 20
"""Fewer that find their evidence teach nothing that holds for others."""
_LEAST_OF_KIND = 10
_NUM_TERMS = 64
"""Terms of a kind that are kept: those that tell most."""
_LEAST_PAGES = 3
"""A term of fewer pages is there by chance."""
_PENALTY = 1.0
"""Of the squared weights, beside the loss of all questions together."""
_NUM_FOLDS = 2

Found = list[tuple[Question, Hits, NDArray[np.bool_]]]
"""Questions with the pages that are found for each, and which of these are evidence."""


def fit(questions: Sequence[Question], index: "PageSearcher", depth: int, searcher: "Searcher", seed: int) -> FeatureModel:
    """The model of the pages that are found for some questions; one without weights where these are too few.

    The terms of kinds would fit the questions that they were taken from too well. So their feature of each half of the questions
    is computed with terms of the other half, which is asked of other pages, and the weights are fitted to that; the terms that
    are kept are of all questions.
    """
    terms = PageTerms(searcher)
    found = _find(questions, index, depth)
    words = QuestionWords([question.question for question, _, _ in found])
    if len(found) < _LEAST_QUESTIONS:
        _logger.warning(f"features keep the order: {len(found)} training questions find evidence, {_LEAST_QUESTIONS} are needed")
        return FeatureModel(num_questions=len(found))
    fold = draw_folds([question for question, _, _ in found], seed)
    values: list[Floats] = [np.empty(0)] * len(found)
    for number in range(_NUM_FOLDS):
        kinds = find_kind_terms([found[i] for i in np.flatnonzero(fold != number)], words, terms)
        of_others = FeatureModel(words.list(), kinds)
        for place in np.flatnonzero(fold == number):
            question, hits, _ = found[place]
            values[place] = compute_features(question.question, hits, terms, choose_kind_terms(of_others, question.question))
    together = np.vstack(values)
    deviations = together.std(axis=0)
    model = FeatureModel(
        words.list(),
        find_kind_terms(found, words, terms),
        tuple(together.mean(axis=0).tolist()),
        tuple(np.where(deviations > 0, deviations, 1.0).tolist()),
        num_questions=len(found),
        index_fingerprint=searcher.record.fingerprint,
    )
    weights = fit_weights([standardise(one, model) for one in values], [is_evidence for _, _, is_evidence in found])
    return replace(model, weights=tuple(weights.tolist()))


def fit_factors(judged: Sequence[tuple[Question, Hits, Sequence[float], Sequence[float]]]) -> Factors | None:
    """The factors of the scores of features and of a model with which the evidence is likeliest (Wolpert, Stacked
    generalization, 1992). A model that misleads counts nothing; None where too few questions tell something of it.

    Args:
        judged: questions of which the model has not learned, with pages that are found for each, their scores by features and
            those of the model.
    """
    values, evidence = list[Floats](), list[NDArray[np.bool_]]()
    for question, hits, of_features, of_model in judged:
        is_evidence = index_of(hits, question.evidence)
        if is_evidence.any() and not is_evidence.all():
            values.append(np.array([of_features, of_model], np.float64).T)
            evidence.append(is_evidence)
    if len(values) < _LEAST_QUESTIONS:
        return None
    features, model = fit_weights(values, evidence).tolist()
    return Factors(features, model) if model > 0 else FEATURES_ALONE  # below 0 its order would count as what it is not


def draw_folds(questions: Sequence[Question], seed: int) -> NDArray[np.int_]:
    """The fold of each question; those of one page are in one."""
    pages = {page: place for place, page in enumerate(dict.fromkeys(question.evidence[0] for question in questions))}
    folds = np.random.default_rng(seed).permutation(len(pages)) % _NUM_FOLDS
    return folds[[pages[question.evidence[0]] for question in questions]]


def _find(questions: Sequence[Question], index: "PageSearcher", depth: int) -> Found:
    found: Found = []
    for question in questions:
        hits = index.search(question.question, depth)
        is_evidence = index_of(hits, question.evidence)
        if is_evidence.any() and not is_evidence.all():
            found.append((question, hits, is_evidence))
    return found


def find_kind_terms(found: Found, words: QuestionWords, terms: PageTerms) -> tuple[QuestionKind, ...]:
    """The kinds of questions, and that of all, each with the terms that tell evidence from the other pages that are found."""
    kinds = find_kinds([words.pick(question.question) for question, _, _ in found], _LEAST_OF_KIND)
    members: Mapping[frozenset[str], Sequence[int]] = {**kinds, ANY_KIND: range(len(found))}
    return tuple(
        QuestionKind(tuple(sorted(kind)), _compare_terms([found[place] for place in places], terms))
        for kind, places in members.items()
    )


def _compare_terms(found: Found, terms: PageTerms) -> dict[str, float]:
    """The logarithm of how much likelier a term is in evidence, of the terms that tell most (by their log-likelihood ratio)."""
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    totals = [0, 0]
    for _, hits, is_evidence in found:
        for hit, is_one in zip(hits, is_evidence.tolist(), strict=True):
            counts[is_one].update(set(terms.read(hit.page)))
            totals[is_one] += 1
    told: dict[str, tuple[float, float]] = {}
    for term in counts[0] | counts[1]:
        others, evidence = counts[0][term], counts[1][term]
        if others + evidence >= _LEAST_PAGES:
            ratio = log((evidence + 0.5) / (totals[1] + 1)) - log((others + 0.5) / (totals[0] + 1))
            told[term] = (_compute_log_likelihood(evidence, totals[1], others, totals[0]), ratio)
    best = sorted(told, key=lambda term: (-told[term][0], term))[:_NUM_TERMS]
    return {term: told[term][1] for term in best}


def _compute_log_likelihood(first: int, of_first: int, second: int, of_second: int) -> float:
    """Dunning's G of two shares (1993): how sure it is that they differ."""
    share = (first + second) / (of_first + of_second)

    def term(count: int, total: int, share: float) -> float:
        return sum(n * log(p) for n, p in ((count, share), (total - count, 1 - share)) if n)

    own = term(first, of_first, first / of_first) + term(second, of_second, second / of_second)
    return own - term(first, of_first, share) - term(second, of_second, share)


def fit_weights(values: Sequence[Floats], is_evidence: Sequence[NDArray[np.bool_]]) -> Floats:
    """The weights with which the evidence is likeliest, each question's pages against one another. Shape (features,).

    The loss of a question is that of its evidence pages on average, plus a small penalty of the squared weights.

    Args:
        values: standardised features of each question's pages, (pages, features).
        is_evidence: of these pages.
    """

    def compute_loss(weights: Floats) -> tuple[float, Floats]:
        loss, gradient = _PENALTY * float(weights @ weights) / 2, _PENALTY * weights
        for rows, evidence in zip(values, is_evidence, strict=True):
            scores = rows @ weights
            shares = np.exp(scores - logsumexp(scores))
            wanted = evidence / evidence.sum()
            loss += float(logsumexp(scores) - wanted @ scores)
            gradient = gradient + (shares - wanted) @ rows
        return loss, gradient

    return np.asarray(minimize(compute_loss, np.zeros(values[0].shape[1]), jac=True, method="L-BFGS-B").x)
