"""One form of texts that look the same: of pages and queries, names of files and answers.

It is Unicode's NFKC without default-ignorable code points, as in NFKC_Casefold (Unicode Standard, 3.13), letter case aside:
letters are composed; ligatures, full-width and presentation forms are plain letters; soft hyphens, joiners, direction marks and
selectors are dropped. A zero-width space ends a word in Thai, Lao, Burmese and Khmer, and is dropped elsewhere. What NFKC would
glue to the letters and digits beside it is kept apart:

    10⁶ cm² ¹⁴C     10^6 cm^2 ^14 C      raised digits, as a keyboard writes them: never 106
    H₂O x₁ 10₂      H2O x1 10 2          lowered digits belong to a word, not to a number
    1½ 5㎏ Word™    1 1/2 5 kg Word TM   other symbols that read as digits or letters

The time is linear in the text. Normalisation sorts the marks on a letter, which takes quadratic time: of more than 30 in a row,
the limit of the stream-safe format (Unicode Annex 15), the rest is dropped.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_RAISED, _LOWERED, _SLASHES = "\u00b2\u00b3\u00b9\u2070\u2074-\u2079", "\u2080-\u2089", "\u2044\u2215"
_SYMBOLS = (
    "\u00bc-\u00be\u2100\u2101\u2105\u2106\u2116\u2120-\u2122\u213b\u2150-\u215f\u2189\u2460-\u24ea\u3200-\u33ff"
    "\U0001f100-\U0001f1af\U0001f200-\U0001f265"
)
"""Numbers and symbols that NFKC makes letters and digits of: fractions, units, what is in circles, brackets and squares."""
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_KANA_MARKS = "\uff9e\uff9f"
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""Thai, Lao, Burmese and Khmer."""
# It begins with one set, so that it is looked for fast; then it looks back at which of the characters was found.
_EDITED = re.compile(
    rf"""[{_RAISED}{_LOWERED}{_SLASHES}{_SYMBOLS}{_INVISIBLE}{_KANA_MARKS}]
    (?:(?<=[{_RAISED}])(?P<raised>[{_RAISED}]*)|(?<=[{_LOWERED}])(?P<lowered>[{_LOWERED}]*)|(?<=[{_SYMBOLS}])(?P<symbol>)
    |(?<=[{_SLASHES}])(?P<slash>)|(?<=[{_KANA_MARKS}])(?P<kana_mark>)|(?<=[{_UNSPACED}]\u200b)(?P<word_end>)|)""",
    re.VERBOSE,
)
_LONG_RUN = re.compile(r"[^\w\x00-\x7f]{31,}")
_MAX_MARKS = 30
_RUN = re.compile(r"[\x00-\x7f]?[^\x00-\x7f]+")
_SQUARE_OR_CUBIC = re.compile("[\u339f-\u33a6\u33a8\u33af]")
_JOINING = re.compile("[\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\ud7b0-\ud7fb\uffa1-\uffdc\U00016d67]")
"""Letters, Hangul's above all, that compose with the one before them; marks do too."""


class Aligned(NamedTuple):
    """A text that was made of another one, and from where to where in that one each of its characters comes from."""

    text: str
    starts: list[int]
    ends: list[int]


def normalise(text: str) -> str:
    """The normal form of a text."""
    return text if text.isascii() else unicodedata.normalize("NFKC", _LONG_RUN.sub(_cut_run, _EDITED.sub(_edit, text)))


def align(text: str) -> Aligned:
    """The normal form of a text with the places that it comes from."""
    edited = Aligned(text, list(range(len(text))), list(range(1, len(text) + 1)))
    edited = _rewrite(edited, ((*found.span(), _edit(found)) for found in _EDITED.finditer(text)))
    edited = _rewrite(edited, ((*found.span(), _cut_run(found)) for found in _LONG_RUN.finditer(edited.text)))
    return _rewrite(edited, _list_compositions(edited.text))


def _rewrite(aligned: Aligned, changes: Iterable[tuple[int, int, str]]) -> Aligned:
    """A text in which parts, each from a place to a place, are replaced."""
    parts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    done = 0
    for start, end, written in changes:
        parts += [aligned.text[done:start], written]
        starts += [*aligned.starts[done:start], *[aligned.starts[start]] * len(written)]
        ends += [*aligned.ends[done:start], *[aligned.ends[end - 1]] * len(written)]
        done = end
    text = "".join([*parts, aligned.text[done:]])
    return Aligned(text, starts + aligned.starts[done:], ends + aligned.ends[done:])


def _cut_run(found: re.Match[str]) -> str:
    return found[0][:_MAX_MARKS]


def _edit(found: re.Match[str]) -> str:
    """The replacement of a part of a text that NFKC alone would leave, or glue to what is beside it."""
    part, (start, end) = found[0], found.span()
    before, after = found.string[start - 1 : start], found.string[end : end + 1]
    match found.lastgroup:
        case "word_end":
            return " "
        case "raised":
            return f"^{part}{_space_from(after)}"
        case "lowered":
            return f"{' ' * before.isdecimal()}{part}{' ' * after.isdecimal()}"
        case "symbol":
            return f"{_space_from(before)}{_read_symbol(part)}{_space_from(after)}"
        case "slash":
            return "/"
        case "kana_mark":
            return unicodedata.normalize("NFKC", part)
        case _:
            return ""


def _space_from(neighbour: str) -> str:
    """A blank, unless there is none needed: beside ASCII's punctuation and at the ends of a text."""
    return "" if neighbour.isascii() and not neighbour.isalnum() else " "


def _read_symbol(symbol: str) -> str:
    form = unicodedata.normalize("NFKC", symbol).replace("\u2044", "/").replace("\u2215", "/")
    return f"{form[:-1]}^{form[-1]}" if _SQUARE_OR_CUBIC.match(symbol) else form


def _list_compositions(text: str) -> Iterator[tuple[int, int, str]]:
    """The letters with their marks that NFKC changes, which compose with nothing beside them, and what it makes of each."""
    for run in _RUN.finditer(text):
        if unicodedata.normalize("NFKC", run[0]) == run[0]:
            continue
        start = run.start()
        for end in range(start + 1, run.end() + 1):
            if end == run.end() or not (unicodedata.category(text[end])[0] == "M" or _JOINING.match(text[end])):
                form = unicodedata.normalize("NFKC", text[start:end])
                if form != text[start:end]:
                    yield start, end, form
                start = end
