"""The text of an HTML document, as a browser would show it with the descriptions in place of its pictures."""

import re
from itertools import accumulate
from typing import Any

from lxml import html
from lxml.etree import ErrorLevels, iterwalk

from drag_ray.corpus.readers.formula import lower_text, raise_text, write_formula
from drag_ray.corpus.readers.word_numbers import write_number
from drag_ray.corpus.text import PAGE_BREAK, LinkedText, count_visible, decode_text, to_encodable
from drag_ray.errors import DataError

_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_CHARSET_BYTES = 4096
"""Where a document says its encoding, if it does."""
_WINDOWS_1252 = ("iso-8859-1", "latin1", "latin-1", "us-ascii", "ascii")
"""What the web takes for Windows-1252."""
_NOT_SHOWN = {"script", "style", "template", "noscript", "iframe", "object", "datalist", "rp", "defs", "symbol", "metadata"}
_HIDDEN = re.compile(r"(?:^|[;\s])(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_UNNUMBERED = re.compile(r"list-style(?:-type)?\s*:[^;]*\bnone\b", re.IGNORECASE)
_SHIFTS = {"sup": raise_text, "sub": lower_text}
_NUMBER_FORMS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
"""The attribute `type` of a list, and how Word calls it."""
_LINES = set(
    re.findall(
        r"\w+",
        """address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption figure footer
        form h1 h2 h3 h4 h5 h6 header hgroup hr legend li listing main menu nav ol optgroup option p pre search section summary
        table tbody text tfoot thead title tr ul xmp""",
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


def extract_html(data: bytes) -> LinkedText:
    """The text of an HTML document with its links; its page breaks are where the `style` of an element says so.

    Its encoding is UTF-8, that of its byte order mark, or the one that it names itself.

    Raises:
        DataError: it is in another encoding, or nested too deeply.
    """
    named = _CHARSET.search(data[:_CHARSET_BYTES])
    charset = named[1].decode("ascii").lower() if named else ""
    return parse_html(decode_text(data, "windows-1252" if charset in _WINDOWS_1252 else charset))


def parse_html(text: str) -> LinkedText:
    """As `extract_html`, of a document that is text already."""
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    document = "<!doctype html><html>" + to_encodable(_CLOSING.sub("", text))
    root = html.document_fromstring(document.encode(), parser=parser)
    for entry in parser.error_log:
        if entry.level == ErrorLevels.FATAL:  # the parser has left out what follows
            raise DataError(f"line {entry.line}: {entry.message}. Simplify it, print it to a PDF or remove it.")
    writer = _write_text(root)
    lines = "".join(writer.parts).split("\n")
    shown = _EMPTY_LINES.sub("\n\n", "\n".join(line.rstrip(" \t") for line in lines))
    before = list(accumulate(map(count_visible, writer.parts), initial=0)) if writer.links else []
    return LinkedText(shown, tuple((before[part], address) for part, address in writer.links))


def _write_text(root: Any) -> "_Writer":
    writer = _Writer()
    walk = iterwalk(root, events=("start", "end"))
    for event, element in walk:
        if event == "end":
            writer.end(element)
        elif not writer.start(element):
            walk.skip_subtree()
    return writer


class _Writer:
    """Writes the text of elements as they begin and end."""

    def __init__(self) -> None:
        self.parts: list[str] = ["\n"]
        self.links: list[tuple[int, str]] = []
        """Addresses, each with the number of parts before it."""
        self._verbatim = 0
        self._shifts: list[str] = []
        """The elements `sup` and `sub` that are open."""
        self._lists: list[_List] = []

    def start(self, element: Any) -> bool:
        """Begin an element; False where nothing within it is shown, or it is written already."""
        name, style = str(element.tag), element.get("style", "")
        if name in _LINES:
            self._end_line()
        if _BREAK_BEFORE.search(style):
            self.parts.append(PAGE_BREAK)
        self._verbatim += name in _VERBATIM
        if name in ("ol", "ul"):
            self._lists.append(_List(element))
        if name in _SHIFTS:
            self._shifts.append(name)
        if name in _NOT_SHOWN or "hidden" in element.attrib or _HIDDEN.search(style):
            return False
        if name == "math":
            self._write(write_formula(element))
            return False
        if name in ("a", "area") and (address := element.get("href")):
            self.links.append((len(self.parts), address))
        if name == "img":
            self._write(f" {element.get('alt', '').strip()} ")
        if name == "li" and self._lists:
            self._write(self._lists[-1].number(element))
        self._write(element.text)
        return True

    def end(self, element: Any) -> None:
        """End an element, and write what follows it."""
        name = str(element.tag)
        if name in _LINES:
            self._end_line()
        self._verbatim -= name in _VERBATIM
        if name in ("ol", "ul"):
            self._lists.pop()
        if name in _SHIFTS:
            self._shifts.pop()
        if name in _ENDINGS:
            self.parts.append(_ENDINGS[name])
        if _BREAK_AFTER.search(element.get("style", "")):
            self.parts.append(PAGE_BREAK)
        self._write(element.tail)

    def _end_line(self) -> None:
        if not self.parts[-1].endswith("\n"):
            self.parts.append("\n")

    def _write(self, text: str | None) -> None:
        text = text or ""
        if self._shifts:
            text = _SHIFTS[self._shifts[-1]](text)
        if self._verbatim:
            text = text.replace(PAGE_BREAK, "\n")
        else:
            text = _BLANKS.sub(" ", text)
            if self.parts[-1][-1] in "\n\t ":
                text = text.removeprefix(" ")
        if text:
            self.parts.append(text)


class _List:
    """The numbers of a list's items (HTML Living Standard, 4.4.5 and 4.4.8)."""

    def __init__(self, element: Any) -> None:
        self._form = "" if element.tag == "ul" or _UNNUMBERED.search(element.get("style", "")) else element.get("type", "1")
        self._step = -1 if "reversed" in element.attrib else 1
        items = len(element.findall("li")) if self._step < 0 else 1
        self._next = _read_int(element.get("start"), items)

    def number(self, item: Any) -> str:
        """The number of an item, with a blank after it."""
        number = _read_int(item.get("value"), self._next)
        self._next = number + self._step
        return f"{write_number(number, _NUMBER_FORMS.get(self._form, 'decimal'))}. " if self._form else ""


def _read_int(text: str | None, default: int) -> int:
    try:
        return int(text) if text and len(text) < 10 else default
    except ValueError:
        return default
