"""The wording that questions share, whatever their subject is."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from drag_ray.search.normal_form import normalise

if TYPE_CHECKING:
    import numpy as np

_WORD = re.compile(r"\w+")
_LEAST_SHARE, _LEAST_QUESTIONS = 0.002, 3
"""Words that so few questions have speak of a subject, and not of what is asked about it."""


class QuestionWords:
    """The words that are common among some questions.

    Args:
        questions: their texts.
    """

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
        return frozenset(word for word in _WORD.findall(normalise(question).lower()) if word in self._places)

    def compare(self, question: str) -> "np.ndarray":
        """The Jaccard index of a question's common words and those of each of the questions, shape (questions,)."""
        import numpy as np

        asked = [self._places[word] for word in self.pick(question)]
        shared = self._has_word[asked].sum(axis=0)
        return shared / np.maximum(self._num_words + len(asked) - shared, 1)


def compute_jaccard(words: frozenset[str], others: frozenset[str]) -> float:
    """The share of two sets' words that both have; 0 for two empty ones."""
    return len(words & others) / max(len(words | others), 1)
