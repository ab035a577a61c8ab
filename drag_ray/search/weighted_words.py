"""Words that may have a weight each, as they are added to a question: `prognosis^2, survival`.

A weight is a number from 0 to `MAX_WEIGHT`, with three decimals at most, at a word that begins or ends with a letter. Any other
`^` is part of the text, as in `10^9`, `3x10^9` and `2^32`.
"""

import re

MAX_WEIGHT = 10
_WEIGHTED = re.compile(
    rf"(?P<word>\W*+(?:[^\W\d_].*|.*[^\W\d_]))\^(?P<weight>\d(?:\.\d{{1,3}})?|{MAX_WEIGHT}(?:\.0{{1,3}})?)\W*", re.DOTALL
)


def read_weight(word: str) -> tuple[str, float]:
    """A word and its weight; 1 where it has none."""
    found = _WEIGHTED.fullmatch(word)
    return (found["word"], float(found["weight"])) if found else (word, 1.0)


def write_weight(word: str, weight: int) -> str:
    """A word with a weight from 1 to `MAX_WEIGHT`: `prognosis^2`; one that can have none, as a number, so many times."""
    weighted = f"{word}^{weight}"
    return word if weight == 1 else weighted if _WEIGHTED.fullmatch(weighted) else " ".join([word] * weight)


def strip_weights(text: str) -> str:
    """The words alone."""
    return " ".join(read_weight(word)[0] for word in text.split())
