"""The text of an HTML document, as a browser would show it without its pictures."""

import re
from typing import Any

from lxml import html
from lxml.etree import ErrorLevels, iterwalk

from drag_ray.corpus.text import PAGE_BREAK, decode_text, to_encodable
from drag_ray.errors import DataError

_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_CHARSET_BYTES = 4096
"""Where a document says its encoding, if it does."""
_WINDOWS_1252 = ("iso-8859-1", "latin1", "latin-1", "us-ascii", "ascii")
"""What the web takes for Windows-1252."""
_NOT_SHOWN = {"head", "script", "style", "template", "noscript", "iframe", "object", "svg", "math"}
_LINES = set(
    re.findall(
        r"\w+",
        """address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption figure footer
        form h1 h2 h3 h4 h5 h6 header hgroup hr legend li listing main menu nav ol optgroup option p pre search section summary
        table tbody tfoot thead tr ul xmp""",
    )
)
"""Elements that begin and end a line."""
_ENDINGS = {"br": "\n", "td": "\t", "th": "\t"}
_VERBATIM = {"pre", "listing", "textarea", "xmp"}
_BREAK_BEFORE, _BREAK_AFTER = (
    re.compile(rf"(?:^|[;\s])(?:page-)?break-{side}\s*:\s*(?:always|page|left|right|recto|verso)\b", re.IGNORECASE)
    for side in ("before", "after")
)
_BLANKS = re.compile(r"[ \t\r\n\f]+")
_CLOSING = re.compile(r"</(?:html|body)\s*>", re.IGNORECASE)
"""Tags that say nothing; libxml2 would leave out what follows them."""
_EMPTY_LINES = re.compile(r"\n{3,}")


def extract_html(data: bytes) -> str:
    """The text of an HTML document; its page breaks are where the `style` of an element says so.

    Its encoding is UTF-8, that of its byte order mark, or the one that it names itself.

    Raises:
        DataError: it is in another encoding, or nested too deeply.
    """
    named = _CHARSET.search(data[:_CHARSET_BYTES])
    charset = named[1].decode("ascii").lower() if named else ""
    return parse_html(decode_text(data, "windows-1252" if charset in _WINDOWS_1252 else charset))


def parse_html(text: str) -> str:
    """As `extract_html`, of a document that is text already."""
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    document = "<!doctype html><html>" + to_encodable(_CLOSING.sub("", text))
    root = html.document_fromstring(document.encode(), parser=parser)
    for entry in parser.error_log:
        if entry.level == ErrorLevels.FATAL:  # the parser has left out what follows
            raise DataError(f"line {entry.line}: {entry.message}. Simplify it, print it to a PDF or remove it.")
    lines = "".join(_write_text(root)).split("\n")
    return _EMPTY_LINES.sub("\n\n", "\n".join(line.rstrip(" \t") for line in lines))


def _write_text(root: Any) -> list[str]:
    parts: list[str] = ["\n"]
    verbatim = 0

    def end_line() -> None:
        if not parts[-1].endswith("\n"):
            parts.append("\n")

    def write(text: str | None) -> None:
        if verbatim:
            text = (text or "").replace(PAGE_BREAK, "\n")
        else:
            text = _BLANKS.sub(" ", text or "")
            if parts[-1][-1] in "\n\t ":
                text = text.removeprefix(" ")
        if text:
            parts.append(text)

    walk = iterwalk(root, events=("start", "end"))
    for event, element in walk:
        name, style = str(element.tag), element.get("style", "")
        if name in _LINES:
            end_line()
        if event == "start":
            if _BREAK_BEFORE.search(style):
                parts.append(PAGE_BREAK)
            verbatim += name in _VERBATIM
            if name in _NOT_SHOWN:
                walk.skip_subtree()
            else:
                write(element.text)
            continue
        verbatim -= name in _VERBATIM
        if name in _ENDINGS:
            parts.append(_ENDINGS[name])
        if _BREAK_AFTER.search(style):
            parts.append(PAGE_BREAK)
        write(element.tail)
    return parts
