"""Kinds of questions: those that are put alike, as "What are the treatments for ...?" about one disease or another."""

from collections import Counter
from collections.abc import Sequence

from drag_ray.baselines.question_words import compute_jaccard

_LEAST_SIMILARITY = 0.6
"""Wordings that share less are of different kinds, however rare they are."""
_LEAST_SHARED = 1 / 3
"""A question that shares less with every kind is of none. Few training questions have few kinds, and with no such bound the words
of one of them were added to the questions of all others, and harmed them."""


def find_kinds(wordings: Sequence[frozenset[str]], least_questions: int) -> dict[frozenset[str], list[int]]:
    """The kinds of some questions, as the wording that stands for each with the positions of its questions.

    What is worded as often as `least_questions` is a kind of its own; of the other wordings those are that are unlike all
    commoner ones. A question is of the kind whose wording is most like its own (`choose_kind`). Kinds of fewer questions are
    given up, and theirs join the others: what is learned from few questions does not hold for the next one.

    Args:
        wordings: the common words of each question (see `QuestionWords.pick`).
        least_questions: of a kind.
    """
    kinds: list[frozenset[str]] = []
    counts = Counter(wordings)
    for wording in sorted(counts, key=lambda wording: (-counts[wording], sorted(wording))):
        likest = max((compute_jaccard(wording, kind) for kind in kinds), default=0.0)
        if wording and (counts[wording] >= least_questions or likest < _LEAST_SIMILARITY):
            kinds.append(wording)
    large = [kind for kind, members in _assign(wordings, kinds).items() if len(members) >= least_questions]
    return _assign(wordings, large)


def choose_kind(wording: frozenset[str], kinds: Sequence[frozenset[str]]) -> frozenset[str] | None:
    """The kind that shares the largest part of its words with a question, of equals the first; None if none shares enough."""
    best = max(kinds, key=lambda kind: compute_jaccard(wording, kind), default=None)
    return best if best and compute_jaccard(wording, best) >= _LEAST_SHARED else None


def _assign(wordings: Sequence[frozenset[str]], kinds: Sequence[frozenset[str]]) -> dict[frozenset[str], list[int]]:
    members: dict[frozenset[str], list[int]] = {kind: [] for kind in kinds}
    chosen = {wording: choose_kind(wording, kinds) for wording in set(wordings)}
    for position, wording in enumerate(wordings):
        kind = chosen[wording]
        if kind is not None:
            members[kind].append(position)
    return members
