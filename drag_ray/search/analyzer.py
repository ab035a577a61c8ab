"""How text becomes terms. Pages and queries go through the same analyzer."""

from tantivy import Filter, TextAnalyzer, TextAnalyzerBuilder, Tokenizer

MAX_TERM_CHARS = 100
"""Longer tokens are dropped: they are encoded data or broken text, and Tantivy refuses terms over 64 KB."""


def build_analyzer(name: str) -> TextAnalyzer:
    """The analyzer of this name (see `SearchConfig.analyzer`). Words are runs of letters and digits."""
    builder = TextAnalyzerBuilder(Tokenizer.simple()).filter(Filter.remove_long(MAX_TERM_CHARS)).filter(Filter.lowercase())
    if name == "english":
        builder = builder.filter(Filter.stopword("english")).filter(Filter.stemmer("english"))
    return builder.build()
