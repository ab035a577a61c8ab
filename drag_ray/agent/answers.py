"""Scores of a final answer and its citations: ANLS* and set precision, recall and F1."""

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import cast

from anls_star import anls_score

from drag_ray.search.normal_form import normalise


@dataclass(frozen=True, slots=True)
class CitationScore:
    """Overlap of the cited set with the evidence set; each value is in 0..1."""

    precision: float
    recall: float
    f1: float


RIGHT_ANLS = 0.5
"""from which on an answer is taken for right, as in MADQA (https://arxiv.org/abs/2603.12180)"""
NO_CITATION = CitationScore(0.0, 0.0, 0.0)


def compute_anls(answer: str, gold_answers: Collection[str]) -> float:
    """ANLS* (Peer et al., 2024) of `answer` against the gold variant that fits best, in 0..1.

    0 when nothing was answered.  Both sides are handed over as one-item lists: a bare string as prediction
    would be read as "any of" by the package.
    """
    normalised = _normalise(answer)
    if not normalised:
        return 0.0
    return max((_compute_variant(normalised, _normalise(gold)) for gold in gold_answers), default=0.0)


def _normalise(text: str) -> str:
    """Lower case with single spaces, as the package compares texts, in the normal form."""
    return " ".join(normalise(text).lower().split())


def _compute_variant(answer: str, gold: str) -> float:
    # The edit distance is at least the difference in length and ANLS* cuts similarities below one half to 0,
    # so a very long answer needs no edit distance, which the package computes in pure Python.
    shorter, longer = sorted((len(answer), len(gold)))
    if 2 * shorter < longer:
        return 0.0
    return cast(float, anls_score([gold], [answer]))


def compute_citation_score(cited: Collection[Hashable], evidence: Collection[Hashable]) -> CitationScore:
    """Precision, recall and F1 of two sets; all 0 when either is empty or nothing is shared."""
    cited_set, evidence_set = set(cited), set(evidence)
    num_shared = len(cited_set & evidence_set)
    if num_shared == 0:
        return NO_CITATION
    precision, recall = num_shared / len(cited_set), num_shared / len(evidence_set)
    return CitationScore(precision, recall, 2 * precision * recall / (precision + recall))
