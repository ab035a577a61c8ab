"""Pages of documents that have no pages of their own: plain text, Markdown (CommonMark with tables), HTML and Word.

One rule for all of them: where a document has page breaks, its pages are what lies between them; otherwise each
`corpus.page_words` words are a page. The options are those of the index stage, so that other pages are another index.
"""

import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

from lxml.etree import ErrorTypes, XMLSyntaxError
from markdown_it import MarkdownIt

from drag_ray.corpus.links import add_links
from drag_ray.corpus.readers.html_text import extract_html, parse_html
from drag_ray.corpus.readers.page_reader import PageReader
from drag_ray.corpus.readers.word_text import check_size, extract_word
from drag_ray.corpus.text import PAGE_BREAK, LinkedText, clean_text, count_visible, decode_text
from drag_ray.search.analyzer import CJK
from drag_ray.types import Page


def extract_markdown(data: bytes) -> LinkedText:
    """The text of a Markdown document with its links; page breaks are form feeds, and what HTML in it says (see `html_text`).
    Raises DataError: it is in an unknown encoding, or nested too deeply."""
    # The parser leaves out what is nested deeper than its own limit. Without one Python's limit of recursion is an error.
    parser = MarkdownIt("commonmark", {"maxNesting": sys.maxsize}).enable("table")
    parts = decode_text(data).split(PAGE_BREAK)
    parsed = [parse_html(parser.render(part)) for part in parts]
    before = accumulate((count_visible(one.text) for one in parsed), initial=0)
    links = ((start + place, address) for start, one in zip(before, parsed, strict=False) for place, address in one.links)
    return LinkedText(PAGE_BREAK.join(one.text for one in parsed), tuple(links))


_EXTRACTORS: dict[str, Callable[[bytes], LinkedText]] = {
    ".txt": lambda data: LinkedText(decode_text(data)),
    ".md": extract_markdown,
    ".markdown": extract_markdown,
    ".html": extract_html,
    ".htm": extract_html,
}
"""How the bytes of a file become text with page breaks; all raise DataError where they are not what the suffix says."""
_WORD_SUFFIX = ".docx"
_MAX_BYTES = 64 * 2**20
"""Of a text, or of what a .docx unpacks to without its pictures."""
TEXT_SUFFIXES = (*_EXTRACTORS, _WORD_SUFFIX)
_WORD = re.compile(rf"[{CJK}]|[^\s{CJK}]{{1,100}}")
"""A run without blanks, of 100 characters at most, or a character of a script that puts no spaces between words."""


def read_text_document(path: Path, file: str, reader: PageReader) -> list[Page]:
    """The pages of a `.txt`, `.md`, `.html` or `.docx` in order.

    Args:
        file: the name that the pages carry, relative to the documents' folder.

    Raises:
        DataError: it is larger than allowed, in an unknown encoding, not what its suffix says, or has too many pages.
        MemoryError: memory is used up.
    """
    whole = _extract(path, _MAX_BYTES)
    texts: list[str] = []
    ends: list[int] = []
    for text in cut_pages(whole.text, reader.config.page_words):
        texts.append(clean_text(text))
        ends.append((ends[-1] if ends else 0) + count_visible(text))
        reader.check_length(path, len(texts))
    links = defaultdict[int, list[str]](list)
    for place, address in whole.links:
        links[min(bisect_right(ends, place) + 1, len(ends))].append(address)
    return [add_links(Page(file, number, len(texts), text, "text"), links[number]) for number, text in enumerate(texts, 1)]


def cut_pages(text: str, page_words: int) -> Iterator[str]:
    """The pages of a text: what lies between its page breaks, or, without any, each `page_words` words.

    A break at the very end ends the last page; every text has a page, if an empty one.
    """
    if PAGE_BREAK in text:
        yield from text.rstrip(" \t\r\n").removesuffix(PAGE_BREAK).split(PAGE_BREAK)
        return
    start = 0
    for number, match in enumerate(_WORD.finditer(text)):
        if number and number % page_words == 0:
            yield text[start : match.start()]
            start = match.start()
    yield text[start:]


def _extract(path: Path, max_bytes: int) -> LinkedText:
    try:
        if path.suffix.lower() == _WORD_SUFFIX:
            return LinkedText(extract_word(path, max_bytes))
        with path.open("rb") as stream:
            data = stream.read(max_bytes + 1)
        check_size(len(data), max_bytes)
        return _EXTRACTORS[path.suffix.lower()](data)
    except XMLSyntaxError as error:
        if error.code == ErrorTypes.ERR_NO_MEMORY:
            raise MemoryError from error
        raise
