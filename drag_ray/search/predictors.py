"""Query performance predictors: what the list of pages that a query finds says of the query, without knowing the right pages.

All are pure functions of scores, ranks and counts. Scores are BM25's, best first. Carmel and Yom-Tov, Estimating the Query
Difficulty for Information Retrieval (2010), is a survey.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from math import log, log2, sqrt
from statistics import fmean, pstdev


def compute_idf(doc_freq: int, num_pages: int) -> float:
    """The inverse document frequency of BM25 (Robertson and Zaragoza 2009, as Lucene has it), at least 0."""
    return log(1 + (num_pages - doc_freq + 0.5) / (doc_freq + 0.5))


def compute_gap(scores: Sequence[float], rank: int) -> float:
    """The best score less that at a 1-based rank, or less the last one of a shorter list; 0 for an empty one."""
    return scores[0] - scores[min(rank, len(scores)) - 1] if scores else 0.0


def compute_nqc(scores: Sequence[float], collection_score: float) -> float:
    """Normalized query commitment: the standard deviation of the scores by that of the collection (Shtok, Kurland, Carmel, Raiber
    and Markovits, Predicting Query Performance by Query-Drift Estimation, 2012).

    Args:
        scores: of the best pages.
        collection_score: of the collection as a single page. BM25 has no such score; what all terms of the query weigh together
            makes queries as comparable. 0 for a query without a term, which commits itself to nothing.
    """
    return pstdev(scores) / collection_score if len(scores) > 1 and collection_score > 0 else 0.0


def compute_wig(scores: Sequence[float], num_terms: int, collection_score: float = 0.0) -> float:
    """Weighted information gain: how far the scores are above the collection's, by the square root of the query's length (Zhou
    and Croft, Query Performance Prediction in Web Search Environments, 2007).

    Args:
        scores: of the best pages.
        num_terms: of the query.
        collection_score: of a page like any other: with BM25 0, that of one without a word of the query.
    """
    return (fmean(scores) - collection_score) / sqrt(num_terms) if scores and num_terms else 0.0


def compute_clarity(pages: Sequence[Mapping[str, int]], doc_freq: Callable[[str], int]) -> float:
    """Clarity: how far the words of the best pages are from those of the collection, as a divergence in bits of at least 0
    (Cronen-Townsend, Zhou and Croft, Predicting Query Performance, 2002).

    Simplified: all pages count alike, and as the collection stands how many pages hold each of their terms.

    Args:
        pages: the counts of the terms of each page.
        doc_freq: how many pages of the collection hold a term, at least 1 for one of these.
    """
    model: Counter[str] = Counter()
    for page in pages:
        total = sum(page.values())
        for term, count in page.items():
            model[term] += count / total  # pyright: ignore[reportArgumentType]
    num_pages = sum(1 for page in pages if page)
    frequencies = {term: doc_freq(term) for term in model}
    num_held = sum(frequencies.values())
    shares = ((share / num_pages, frequencies[term] / num_held) for term, share in model.items())
    return sum(share * log2(share / expected) for share, expected in shares)


def compute_coverage(terms: Collection[str], page: Collection[str]) -> float:
    """The share of some terms that a page holds; 0 without terms."""
    return sum(term in page for term in terms) / len(terms) if terms else 0.0


def compute_rbo(first: Sequence[Hashable], second: Sequence[Hashable], p: float = 0.9) -> float:
    """Rank-biased overlap of two rankings, 0..1 (Webber, Moffat and Zobel, A Similarity Measure for Indefinite Rankings, 2010).

    The sum over depths d of p^(d-1) times the share of pages that the first d of both have in common, cut at the longer
    ranking and scaled so that equal ones have 1. Two empty rankings are equal.
    """
    depth = max(len(first), len(second))
    if not depth:
        return 1.0
    weights = [p**d for d in range(depth)]
    shares = (len(set(first[:d]) & set(second[:d])) / d for d in range(1, depth + 1))
    return sum(weight * share for weight, share in zip(weights, shares, strict=True)) / sum(weights)


def compute_jaccard(first: Sequence[Hashable], second: Sequence[Hashable], k: int) -> float:
    """The Jaccard index of the first k of two rankings: what both have, of what either has. Two empty rankings are equal."""
    one, other = set(first[:k]), set(second[:k])
    return len(one & other) / len(one | other) if one | other else 1.0
