"""Filters of written questions that ask no model: by their words, and by their likeness to one another."""

import re
from collections.abc import Sequence

from drag_ray.corpus.near_duplicates import Shingles, find_similar, hash_runs, list_words

_NOUN = r"(?:pages?|documents?|passages?|texts?|articles?|excerpts?|sections?|paragraphs?|chapters?|tables?|figures?|snippets?)"
_SELF_REFERENCE = re.compile(
    rf"\b(?:(?:this|these)\s+(?:functions?|methods?|commands?|classes|class|examples?|code)"
    rf"|(?:this|these|the\s+(?:above|given|following|provided|preceding|present|attached))\s+{_NOUN}"
    rf"|(?:according\s+to|in|on|by|of|from)\s+the\s+{_NOUN}"
    rf"|the\s+{_NOUN}\s+(?:say|explain|describe|mention|state|discuss|show|list|contain|provide)s?"
    r"|(?:stated|mentioned|described|shown|listed|given|provided)\s+(?:above|below|here)"
    r"|dies(?:e[mnrs]?)?\s+(?:seite|dokuments?|text(?:es)?|abschnitts?|tabelle)"
    r"|cet(?:te)?\s+(?:page|article|extrait)|ce\s+(?:document|passage|texte|tableau)"
    r"|est[ea]\s+(?:página|documento|texto|pasaje|artículo|tabla))\b",
    re.IGNORECASE,
)
_COPIED_WORDS = 8
_RUN_WORDS = 2
"""Questions are too short for the shingles of pages."""


def refers_to_page(question: str) -> bool:
    """True if a question speaks of the page that it was written from, which whoever asks has not seen. English, German, French
    and Spanish words are looked for."""
    return _SELF_REFERENCE.search(question) is not None


def copies_run(question: str, page: str) -> bool:
    """True if more than eight words in a row are the page's own."""
    length = _COPIED_WORDS + 1
    asked, written = list_words(question), list_words(page)
    runs = {tuple(written[start : start + length]) for start in range(len(written) - _COPIED_WORDS)}
    return any(tuple(asked[start : start + length]) in runs for start in range(len(asked) - _COPIED_WORDS))


def find_repeated(questions: Sequence[str], examples: Sequence[str] = ()) -> set[int]:
    """The places of the questions that nearly duplicate one of the examples, or an earlier question that stays.

    They do if the Jaccard similarity of their pairs of words is at least 0.8 (see `near_duplicates`) and they have the same
    numbers: a question about another year is another question.

    Args:
        questions: in the order in which they are kept, each with a word or more.
        examples: questions of users, which a model may copy.
    """
    asked = [list_words(text) for text in (*examples, *questions)]
    numbers = [sorted(word for word in words if any(map(str.isdigit, word))) for words in asked]
    repeated = set[int]()
    for first, second in find_similar([_shingle(words) for words in asked]):
        if first not in repeated and numbers[first] == numbers[second]:
            repeated.add(second)
    return {place - len(examples) for place in repeated if place >= len(examples)}


def _shingle(words: Sequence[str]) -> Shingles:
    return hash_runs(words, min(_RUN_WORDS, len(words)))
