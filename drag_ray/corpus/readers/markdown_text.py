"""The text of a Markdown document (CommonMark with tables), as it would be shown."""

import sys

from markdown_it import MarkdownIt

from drag_ray.corpus.readers.html_text import parse_html
from drag_ray.corpus.text import PAGE_BREAK, decode_text


def extract_markdown(data: bytes) -> str:
    """The text of a Markdown document; page breaks are form feeds, and what HTML in it says (see `html_text`).

    Raises:
        DataError: it is in an unknown encoding, or nested too deeply.
    """
    # The parser leaves out what is nested deeper than its own limit. Without one Python's limit of recursion is an error.
    parser = MarkdownIt("commonmark", {"maxNesting": sys.maxsize}).enable("table")
    parts = decode_text(data).split(PAGE_BREAK)
    return PAGE_BREAK.join(parse_html(parser.render(part)) for part in parts)
