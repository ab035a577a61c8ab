"""Terms of an index back to words: a model is to write words, and a stem is none."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable

from drag_ray.search.normal_form import normalise

_WORD = re.compile(r"[^\W_]+")


class WordForms:
    """The words that terms stand for in some texts.

    Args:
        analyze: from a text to the terms that the index has of it.
    """

    def __init__(self, analyze: Callable[[str], list[str]]) -> None:
        self._analyze = analyze
        self._terms: dict[str, str] = {}
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, text: str) -> set[str]:
        """Take in the words of a text; returns the terms of those that are a term each."""
        terms: set[str] = set()
        for word, count in Counter(_WORD.findall(normalise(text).lower())).items():
            term = self._to_term(word)
            if term:
                self._counts[term][word] += count
                terms.add(term)
        return terms

    def write(self, term: str) -> str:
        """The commonest word for a term, of equals the first in the alphabet; the term itself if no text had a word for it."""
        counts = self._counts.get(term)
        return min(counts, key=lambda word: (-counts[word], word)) if counts else term

    def _to_term(self, word: str) -> str:
        if word not in self._terms:
            terms = self._analyze(word)
            self._terms[word] = terms[0] if len(terms) == 1 else ""
        return self._terms[word]
