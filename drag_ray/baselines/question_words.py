"""The wording that questions share, whatever their subject is, and their kinds: those that are put alike, as "What are the
treatments for ...?" about one disease or another."""

import re
from collections import Counter
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from drag_ray.search.normal_form import normalise

if TYPE_CHECKING:
    import numpy as np

_WORD = re.compile(r"\w+")
_LEAST_SHARE, _LEAST_QUESTIONS = 0.002, 3
"""Words that so few questions have speak of a subject, and not of what is asked about it."""
_LEAST_SIMILARITY = 0.6
"""Wordings that share less are of different kinds, however rare they are."""
_LEAST_SHARED = 1 / 3
"""A question that shares less with every kind is of none. Few training questions have few kinds, and with no such bound the words
of one of them were added to the questions of all others, and harmed them."""


class QuestionWords:
    """The words that are common among some questions."""

    def __init__(self, questions: Sequence[str]) -> None:
        import numpy as np

        words = [set(_WORD.findall(normalise(question).lower())) for question in questions]
        counts = Counter(word for of_question in words for word in of_question)
        least = max(_LEAST_QUESTIONS, _LEAST_SHARE * len(questions))
        self._places = {word: place for place, word in enumerate(sorted(word for word, n in counts.items() if n >= least))}
        self._has_word = np.zeros((len(self._places), len(questions)), dtype=np.uint8)
        for column, of_question in enumerate(words):
            self._has_word[[self._places[word] for word in of_question if word in self._places], column] = 1
        self._num_words = self._has_word.sum(axis=0)

    def pick(self, question: str) -> frozenset[str]:
        """The common words of a question."""
        return pick_words(question, self._places)

    def list(self) -> frozenset[str]:
        """All of them."""
        return frozenset(self._places)

    def compare(self, question: str) -> "np.ndarray":
        """The Jaccard index of a question's common words and those of each of the questions, shape (questions,)."""
        import numpy as np

        asked = [self._places[word] for word in self.pick(question)]
        shared = self._has_word[asked].sum(axis=0)
        return shared / np.maximum(self._num_words + len(asked) - shared, 1)


def pick_words(question: str, common: Container[str]) -> frozenset[str]:
    """The words of a question that are common ones."""
    return frozenset(word for word in _WORD.findall(normalise(question).lower()) if word in common)


def compute_jaccard(words: frozenset[str], others: frozenset[str]) -> float:
    """The share of two sets' words that both have; 0 for two empty ones."""
    return len(words & others) / max(len(words | others), 1)


def find_kinds(wordings: Sequence[frozenset[str]], least_questions: int) -> dict[frozenset[str], list[int]]:
    """The kinds of some questions, as the wording that stands for each with the positions of its questions.

    What is worded as often as `least_questions` is a kind of its own; of the other wordings those are that are unlike all
    commoner ones. A question is of the kind whose wording is most like its own (`choose_kind`). Kinds of fewer questions are
    given up, and theirs join the others: what is learned from few questions does not hold for the next one.
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
