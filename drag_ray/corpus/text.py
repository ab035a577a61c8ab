"""Text as every encoder and index takes it."""

import codecs
import re
from collections.abc import Collection
from itertools import islice
from typing import NamedTuple

from drag_ray.errors import DataError

PAGE_BREAK = "\f"
"""What ends a page of a text, a form feed."""


class LinkedText(NamedTuple):
    """A text, and the addresses that it links to, each with the number of characters before it, blanks aside: these stay where
    they are, whatever becomes of the lines."""

    text: str
    links: tuple[tuple[int, str], ...] = ()


# PDFium writes U+0002 (other builds U+FFFE) for a hyphen at the end of a line, with the rest of the word after it.
# It is looked for from the beginnings of words alone: from each of their letters, a text without blanks took quadratic time.
_LINE_END_HYPHEN = re.compile("(?<!\\w)(\\w++)[\x02\ufffe](?:\r?\n)?(\\w++)")
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")
_BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
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


def decode_text(data: bytes, charset: str = "") -> str:
    """The text of a file in UTF-8, in the encoding of its byte order mark, or else in `charset`; nothing is guessed. Raises
    DataError: it is in another encoding, or holds NULs as files do that are no text."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return _decode(data[len(mark) :], [encoding])
    return _decode(data, [encoding for encoding in ("utf-8", charset) if encoding])


def _decode(data: bytes, encodings: list[str]) -> str:
    for encoding in encodings:
        try:
            text = str(data, encoding)
        except (UnicodeError, LookupError):
            continue
        if "\0" not in text:
            return text
    raise DataError(f"is no text in {' or '.join(encodings)}. Save it as UTF-8 or remove it.")


def to_encodable(text: str) -> str:
    """Text without NULs and lone surrogates, and so with nothing that a table cannot hold."""
    return text.replace("\0", "").encode("utf-8", "ignore").decode("utf-8")


def to_printable(text: str) -> str:
    """Text that can be written anywhere: bytes of a file name that are no UTF-8 read `\\xff`, other surrogates `\\ud800`."""
    with_bytes = _ESCAPED_BYTE.sub(lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", text)
    return with_bytes.encode("utf-8", "backslashreplace").decode("utf-8")


def count_visible(text: str) -> int:
    """The number of characters, blanks aside."""
    return sum(map(len, text.split()))


def count_letters(text: str, limit: int | None = None) -> int:
    """Letters and digits, up to `limit`: what a reader can use, unlike blanks, dots and glyphs without a meaning."""
    return sum(1 for _ in islice(filter(str.isalnum, text), limit))
