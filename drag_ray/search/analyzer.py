"""The analyzer, which makes terms of text. Pages and queries go through the same, in their normal form (see `normal_form`)."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

from tantivy import Filter, TextAnalyzer, TextAnalyzerBuilder, Tokenizer

from drag_ray.search.normal_form import align, normalise

MAX_TERM_BYTES = 100
"""Longer tokens are dropped: they are encoded data or broken text, and Tantivy refuses terms over 64 KB."""

_WITHOUT_STOP_WORDS = {"arabic", "greek", "romanian", "tamil", "turkish"}
CJK = (
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Characters of the scripts that put no spaces between words, as ranges of a regular expression's set."""
_CJK_RUN = re.compile(rf"(?P<cjk>[{CJK}]+)|[^\W_{CJK}]+")


class Token(NamedTuple):
    """A term with its position, which counts words, and its offsets `start` and `end`, which count characters."""

    term: str
    position: int
    start: int
    end: int


class Analyzer(ABC):
    """Splits text into terms, in its normal form. One analyzer may serve many threads."""

    text_analyzer: TextAnalyzer
    """what the index runs over `prepare(text)`"""

    @abstractmethod
    def prepare(self, text: str) -> str:
        """The text as it is handed to the index."""

    @abstractmethod
    def analyze(self, text: str) -> list[str]:
        """The terms in their order, repetitions included."""

    def locate(self, text: str) -> list[Token]:
        """The terms with their positions and offsets in the text."""
        form = normalise(text)
        tokens = self._cut(form)
        if form == text:
            return tokens
        aligned = align(text)
        return [Token(term, position, aligned.starts[start], aligned.ends[end - 1]) for term, position, start, end in tokens]

    @abstractmethod
    def _cut(self, form: str) -> list[Token]:
        """The terms of a normal form, with their offsets in it."""


def build_analyzer(name: str) -> Analyzer:
    """The analyzer of this name (see `SearchConfig.analyzer`)."""
    return _CjkAnalyzer() if name == "cjk" else _TantivyAnalyzer(name)


class _TantivyAnalyzer(Analyzer):
    """A chain of Tantivy's own parts. Words are runs of letters and digits."""

    def __init__(self, name: str) -> None:
        builder = TextAnalyzerBuilder(Tokenizer.simple()).filter(Filter.remove_long(MAX_TERM_BYTES)).filter(Filter.lowercase())
        if name != "plain":
            if name not in _WITHOUT_STOP_WORDS:
                builder = builder.filter(Filter.stopword(name))
            builder = builder.filter(Filter.stemmer(name))
        self.text_analyzer = builder.build()

    def prepare(self, text: str) -> str:
        return normalise(text)

    def analyze(self, text: str) -> list[str]:
        return self.text_analyzer.analyze(normalise(text))

    def _cut(self, form: str) -> list[Token]:
        tokens = self.text_analyzer.pre_tokenize(form).tokens
        return [Token(token.text, token.position, token.char_offset_from, token.char_offset_to) for token in tokens]


class _CjkAnalyzer(Analyzer):
    """A tokenizer in Python, as Tantivy has none: the index gets its terms with spaces between them."""

    def __init__(self) -> None:
        self.text_analyzer = TextAnalyzerBuilder(Tokenizer.whitespace()).build()

    def prepare(self, text: str) -> str:
        return " ".join(self.analyze(text))

    def analyze(self, text: str) -> list[str]:
        return [token.term for token in self._cut(normalise(text))]

    def _cut(self, form: str) -> list[Token]:
        kept = (token for token in _tokenize_cjk(form) if len(token[0].encode()) < MAX_TERM_BYTES)
        return [Token(term, position, start, end) for position, (term, start, end) in enumerate(kept)]


def _tokenize_cjk(text: str) -> Iterator[tuple[str, int, int]]:
    """Unigrams and bigrams in turn, so that a word of any length is a phrase; other words whole, in lower case."""
    for match in _CJK_RUN.finditer(text):
        start, end = match.span()
        if not match["cjk"]:
            yield match[0].lower(), start, end
            continue
        for offset in range(start, end):
            yield text[offset], offset, offset + 1
            if offset + 1 < end:
                yield text[offset : offset + 2], offset, offset + 2
