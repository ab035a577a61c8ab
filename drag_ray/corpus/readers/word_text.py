"""The text of a Word document: its body with tables, text boxes and notes, without headers, footers and comments.

Its parts are read one by one: one that is missing, or a relationship that leads nowhere, costs nothing else.
"""

import posixpath
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lxml.etree import XMLParser, XMLSyntaxError, fromstring, iterwalk

from drag_ray.corpus.readers.formula import lower_text, raise_text, write_formula
from drag_ray.corpus.readers.word_numbers import WordNumbers, WordStyles, read_value
from drag_ray.corpus.text import PAGE_BREAK
from drag_ray.errors import DataError

_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/"
_STRICT = {
    b"http://purl.oclc.org/ooxml/wordprocessingml/main": b"http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    b"http://purl.oclc.org/ooxml/officeDocument/math": b"http://schemas.openxmlformats.org/officeDocument/2006/math",
    b"http://purl.oclc.org/ooxml/drawingml/": b"http://schemas.openxmlformats.org/drawingml/2006/",
    b"http://purl.oclc.org/ooxml/officeDocument/relationships": _OFFICE.rstrip("/").encode(),
}
"""The namespaces of ISO 29500 Strict, and those of what Word writes by default."""


class WordPackage:
    """The parts of an open `.docx`. Raises DataError: it holds more than `max_bytes`."""

    def __init__(self, archive: zipfile.ZipFile, max_bytes: int) -> None:
        self._archive = archive
        # Of each file no more is read than what is said here.
        texts = (item.file_size for item in self._archive.infolist() if item.filename.endswith((".xml", ".rels")))
        check_size(sum(texts), max_bytes)
        self._names = set(self._archive.namelist())
        named = self._list_targets("").get("officeDocument")
        self._main = named if named in self._names else "word/document.xml"
        self._targets = self._list_targets(self._main)

    def read_body(self) -> Any:
        """The root of the main part. Raises DataError: there is none."""
        if self._main not in self._names:
            raise DataError(f"is no .docx: holds no {self._main}. Repair it or remove it.")
        return self._parse(self._main)

    def read_part(self, kind: str) -> Any | None:
        """The root of a part that the main part refers to, such as `numbering`; None where it has none that can be read."""
        return self._parse_whole(self._targets.get(kind, ""))

    def _list_targets(self, name: str) -> dict[str, str]:
        """The parts that a part (empty: the package) refers to, by the last word of the relationship's type."""
        folder, _, file = name.rpartition("/")
        relations = self._parse_whole(posixpath.join(folder, "_rels", f"{file}.rels"))
        targets: dict[str, str] = {}
        for item in () if relations is None else relations:
            if item.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", folder, item.get("Target", ""))).lstrip("/")
                targets.setdefault(item.get("Type", "").rpartition("/")[2], target)
        return targets

    def _parse_whole(self, name: str) -> Any | None:
        """The root of a part; None where it is not there, or no XML."""
        try:
            return self._parse(name) if name in self._names else None
        except XMLSyntaxError:
            return None

    def _parse(self, name: str) -> Any:
        data = self._archive.read(name)
        for strict, usual in _STRICT.items():
            data = data.replace(strict, usual)
        return fromstring(data, XMLParser(resolve_entities=False, no_network=True, remove_comments=True))


def check_size(num_bytes: int, max_bytes: int) -> None:
    """DataError where a document holds more than one may."""
    if num_bytes > max_bytes:
        raise DataError(f"holds more than {max_bytes >> 20:,} MiB. Split it or remove it.")


_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_SKIPPED = {
    f"{_W}moveFrom",  # what was moved stands where it was moved to
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",  # the same once more, for older programs
}
_CHARACTERS = {f"{_W}tab": "\t", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
_NOTES = {f"{_W}footnoteReference": ("footnotes", f"{_W}footnote"), f"{_W}endnoteReference": ("endnotes", f"{_W}endnote")}
_FORMULA = "{http://schemas.openxmlformats.org/officeDocument/2006/math}oMath"
_PICTURE = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}docPr"
_SHIFTS = {"superscript": raise_text, "subscript": lower_text}
_SHIFTED_BY = 4
"""half points, from which on text is raised or lowered and not set in place"""
_PRIVATE = 0xF000
"""Where fonts of symbols have their characters, from here on by their number in the font."""
_SYMBOL = dict(
    zip(
        (*range(0x22, 0x7F), *range(0xA1, 0xF0), *range(0xF1, 0xFF)),
        "∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼"  # noqa: RUF001
        "ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪"  # noqa: RUF001
        "〉∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭",
        strict=True,
    )
)
"""The characters of the font Symbol (Unicode's mapping file SYMBOL.TXT)."""
_WINGDINGS = {0x6C: "●", 0x6E: "■", 0xA7: "▪", 0xA8: "☐", 0xD8: "➢", 0xE0: "→", 0xFB: "✗", 0xFC: "✓", 0xFD: "☒", 0xFE: "☑"}
_FONTS = {"symbol": _SYMBOL, "wingdings": _WINGDINGS}
_NOT_ON = ("0", "false", "off")
_ON_SAME_PAGE = ("continuous", "nextColumn")

Notes = Mapping[str, Mapping[str, str]]
"""The texts of notes by the tag that refers to them and by their id."""


def extract_word(path: Path, max_bytes: int) -> str:
    """The text of a `.docx` as a reader sees it: with the numbers of lists, formulas in a line, and the descriptions of pictures.

    Notes stand in brackets where they are referred to. Page breaks are those that its author made and, where Word has saved it,
    those that Word found when it did.

    Raises:
        DataError: it is no `.docx`, or what it holds is larger than `max_bytes`. Whatever a damaged one raises passes through.
    """
    if not zipfile.is_zipfile(path):
        raise DataError("is no .docx: of an older format, encrypted or damaged. Save it as .docx without a password.")
    with zipfile.ZipFile(path) as archive:
        package = WordPackage(archive, max_bytes)
        styles = WordStyles(package.read_part("styles"))
        notes = {reference: _read_notes(package.read_part(kind), tag, styles) for reference, (kind, tag) in _NOTES.items()}
        numbers = WordNumbers(package.read_part("numbering"), styles)
        return _Writer(notes, numbers, styles).write(package.read_body())


def _read_notes(root: Any | None, tag: str, styles: WordStyles) -> dict[str, str]:
    """The texts of footnotes, or of endnotes, by their ids."""
    notes = () if root is None else root.iter(tag)
    return {
        note.get(f"{_W}id", ""): " ".join(_Writer({}, WordNumbers(None, styles), styles).write(note).split()) for note in notes
    }


class _Writer:
    """Writes the text of a part of a document."""

    def __init__(self, notes: Notes, numbers: WordNumbers, styles: WordStyles) -> None:
        self._notes = notes
        self._numbers = numbers
        self._styles = styles
        self._run: Any = None
        """The run that is being written; None before the first."""
        self._parts: list[str] = []
        self._follows_break = False
        """Nothing has been written since the last page break."""
        self._ends_page = False
        """The paragraph is the last one of a section, and the next one begins on a new page."""

    def write(self, root: Any) -> str:
        sections = [item for item in root.iter(f"{_W}sectPr") if item.getparent().tag in (f"{_W}pPr", f"{_W}body")]
        starts = iter([read_value(section, "type") not in _ON_SAME_PAGE for section in sections[1:]])
        walk = iterwalk(root, events=("start", "end"))
        for event, element in walk:
            name = element.tag
            if event == "end":
                self._end(name)
            elif name in _SKIPPED or (name == f"{_W}r" and self._is_hidden(element)):
                walk.skip_subtree()
            elif name == _FORMULA:
                self._add(write_formula(element))
                walk.skip_subtree()
            elif name == f"{_W}sectPr" and element.getparent().tag == f"{_W}pPr":
                self._ends_page = next(starts, False)
            else:
                self._start(name, element)
        return "".join(self._parts)

    def _start(self, name: str, element: Any) -> None:
        if name == f"{_W}t":
            self._add(self._shift(_read_symbols(element.text or "", self._run)))
        elif name == f"{_W}r":
            self._run = element
        elif name == f"{_W}p":
            self._add(self._numbers.next(element))
        elif name == f"{_W}sym":
            self._add(_read_symbol(element.get(f"{_W}font", ""), element.get(f"{_W}char", "")))
        elif name == _PICTURE and element.get("descr"):
            self._add(f" [{element.get('descr')}] ")
        elif name in _CHARACTERS and element.getparent().tag == f"{_W}r":  # elsewhere a tab is a place on the ruler
            self._add(_CHARACTERS[name])
        elif name == f"{_W}br":
            self._break() if element.get(f"{_W}type") == "page" else self._add("\n")
        elif name == f"{_W}lastRenderedPageBreak":
            if not self._follows_break:  # else it is what became of a break that the author made
                self._break()
        elif name == f"{_W}pageBreakBefore" and element.get(f"{_W}val") not in _NOT_ON:
            self._break()
        elif name in self._notes:
            note = self._notes[name].get(element.get(f"{_W}id", ""), "")
            self._add(f" [{note}] " if note else "")

    def _end(self, name: str) -> None:
        if name == f"{_W}tc" and self._parts and self._parts[-1] == "\n":
            self._parts[-1] = "\t"  # the last paragraph of a cell does not end the line of its row
        elif name in (f"{_W}p", f"{_W}tr"):
            self._parts.append("\n")
        if name == f"{_W}p" and self._ends_page:
            self._break()
            self._ends_page = False

    def _is_hidden(self, run: Any) -> bool:
        hidden = self._styles.find_of_run(run, "vanish")
        return hidden is not None and hidden.get(f"{_W}val") not in _NOT_ON

    def _shift(self, text: str) -> str:
        """Apply superscript and subscript, which may be no more than text that stands higher or lower."""
        if self._run is None:
            return text
        align, position = (self._styles.find_of_run(self._run, name) for name in ("vertAlign", "position"))
        if align is not None and (shift := _SHIFTS.get(align.get(f"{_W}val", ""))):
            return shift(text)
        half_points = "" if position is None else position.get(f"{_W}val", "")
        places = int(half_points) if half_points.lstrip("-").isdecimal() else 0
        if abs(places) < _SHIFTED_BY:
            return text
        return raise_text(text) if places > 0 else lower_text(text)

    def _add(self, text: str) -> None:
        self._parts.append(text)
        self._follows_break = self._follows_break and not text.strip()

    def _break(self) -> None:
        self._parts.append(PAGE_BREAK)
        self._follows_break = True


def _read_symbols(text: str, run: Any | None) -> str:
    """Text of a run in a font of symbols, whose letters stand for others."""
    fonts = None if run is None else run.find(f"{_W}rPr/{_W}rFonts")
    shown = _FONTS.get("" if fonts is None else fonts.get(f"{_W}ascii", "").lower())
    if not shown:  # as nearly all of a document is
        return text
    return "".join(shown.get(ord(char) & 0xFF, char) if ord(char) >> 8 == _PRIVATE >> 8 else char for char in text)


def _read_symbol(font: str, code: str) -> str:
    """The character of a `w:sym`; empty where nobody knows what its font shows."""
    try:
        number = int(code, 16)
    except ValueError:
        return ""
    return _FONTS.get(font.lower(), {}).get(number & 0xFF, "") if number >= _PRIVATE else chr(number)
