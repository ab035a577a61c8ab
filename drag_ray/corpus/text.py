"""Text as every encoder and index takes it."""

import re
from collections.abc import Collection
from itertools import islice

# PDFium writes U+0002 (other builds U+FFFE) for a hyphen at the end of a line, with the rest of the word after it.
_LINE_END_HYPHEN = re.compile("(\\w+)[\x02\ufffe](?:\r?\n)?(\\w+)")
_UNWANTED = re.compile("[\x00\x02\ud800-\udfff\ufffe\uffff]")


def clean_text(text: str, words: Collection[str] = ()) -> str:
    """Text that every encoder and index takes: no NULs, no lone surrogates, `\\n` line ends.

    A hyphen at a line's end either breaks a word or belongs to it.  The word is joined if the document has it
    in one piece elsewhere (`words`, in lower case), and keeps its hyphen otherwise.
    """

    def rejoin(match: re.Match[str]) -> str:
        whole = match[1] + match[2]
        return whole if whole.lower() in words else f"{match[1]}-{match[2]}"

    rejoined = _LINE_END_HYPHEN.sub(rejoin, text)
    return _UNWANTED.sub("", rejoined).replace("\r\n", "\n").replace("\r", "\n").strip()


def count_letters(text: str, limit: int | None = None) -> int:
    """Letters and digits, up to `limit`: what a reader can use, unlike blanks, dots and glyphs without a meaning."""
    return sum(1 for _ in islice(filter(str.isalnum, text), limit))
