"""Languages of pages and questions, which a naive Bayes classifier of byte sequences tells.

It is py3langid (https://github.com/adbar/py3langid), after Lui and Baldwin, "langid.py: An Off-the-shelf Language Identification
Tool" (2012); its model comes with the package.
"""

from functools import cache
from typing import Any

from drag_ray.corpus.near_duplicates import list_words

UNKNOWN = ""
_MIN_WORDS = 4
"""of letters; a Chinese, Japanese or Korean character counts as one"""
_MIN_CONFIDENCE = 0.8
_MAX_CHARS = 2_000
_NO_LANGUAGE = "zxx"


@cache
def _load_identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # its model takes a second to load

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def list_languages() -> list[str]:
    """The ISO 639 codes of the languages that can be told."""
    return [code for code in _load_identifier().labels if code != _NO_LANGUAGE]


def tell_language(text: str) -> str:
    """The ISO 639 code of a text's language; `UNKNOWN` where it is too short, of numbers, or it could be another one."""
    read = text[:_MAX_CHARS]
    if sum(not word.isdecimal() for word in list_words(read)) < _MIN_WORDS:
        return UNKNOWN
    code, confidence = _load_identifier().classify(read)
    return code if confidence >= _MIN_CONFIDENCE and code != _NO_LANGUAGE else UNKNOWN
