"""The text of a Word document: its body with tables, text boxes and notes, without headers, footers and comments."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import docx
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.oxml.parser import parse_xml
from lxml.etree import iterwalk

from drag_ray.corpus.text import PAGE_BREAK
from drag_ray.errors import DataError

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_SKIPPED = {
    f"{_W}moveFrom",  # what was moved stands where it was moved to
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",  # the same once more, for older programs
}
_CHARACTERS = {f"{_W}tab": "\t", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
_NOTES = {
    f"{_W}footnoteReference": (RELATIONSHIP_TYPE.FOOTNOTES, f"{_W}footnote"),
    f"{_W}endnoteReference": (RELATIONSHIP_TYPE.ENDNOTES, f"{_W}endnote"),
}
_NOT_ON = ("0", "false", "off")
_ON_SAME_PAGE = ("continuous", "nextColumn")

Notes = Mapping[str, Mapping[str, str]]
"""The texts of notes by the tag that refers to them and by their id."""


def check_size(num_bytes: int, max_bytes: int) -> None:
    """DataError where a document holds more than one may."""
    if num_bytes > max_bytes:
        raise DataError(f"holds more than {max_bytes >> 20:,} MiB (corpus.document_text_mib). Split it or remove it.")


def extract_word(path: Path, max_bytes: int) -> str:
    """The text of a `.docx`; notes stand in brackets where they are referred to.

    Page breaks are those that its author made and, where Word has saved it, those that Word found when it did.

    Raises:
        DataError: it is no `.docx`, or what it holds is larger than `max_bytes`. Whatever a damaged one raises passes through.
    """
    if not zipfile.is_zipfile(path):
        raise DataError("is no .docx: of an older format, encrypted or damaged. Save it as .docx without a password.")
    with zipfile.ZipFile(path) as archive:  # of each file no more is read than what is said here
        check_size(sum(item.file_size for item in archive.infolist() if item.filename.endswith((".xml", ".rels"))), max_bytes)
    document = docx.Document(str(path))
    notes = {reference: _read_notes(document.part, *place) for reference, place in _NOTES.items()}
    return _Writer(notes).write(document.element.body)


def _read_notes(part: Any, relationship: str, tag: str) -> dict[str, str]:
    """The texts of footnotes, or of endnotes, by their ids."""
    targets = [found.target_part for found in part.rels.values() if found.reltype == relationship and not found.is_external]
    notes = [note for target in targets for note in parse_xml(target.blob).iter(tag)]
    return {note.get(f"{_W}id", ""): " ".join(_Writer({}).write(note).split()) for note in notes}


class _Writer:
    """Writes the text of a part of a document."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._parts: list[str] = []
        self._follows_break = False
        """Nothing has been written since the last page break."""
        self._ends_page = False
        """The paragraph is the last one of a section, and the next one begins on a new page."""

    def write(self, root: Any) -> str:
        sections = [item for item in root.iter(f"{_W}sectPr") if item.getparent().tag in (f"{_W}pPr", f"{_W}body")]
        starts = iter([_starts_page(section) for section in sections[1:]])
        walk = iterwalk(root, events=("start", "end"))
        for event, element in walk:
            name = element.tag
            if event == "end":
                self._end(name)
            elif name in _SKIPPED:
                walk.skip_subtree()
            elif name == f"{_W}sectPr" and element.getparent().tag == f"{_W}pPr":
                self._ends_page = next(starts, False)
            else:
                self._start(name, element)
        return "".join(self._parts)

    def _start(self, name: str, element: Any) -> None:
        if name == f"{_W}t":
            self._add(element.text or "")
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

    def _add(self, text: str) -> None:
        self._parts.append(text)
        self._follows_break = self._follows_break and not text.strip()

    def _break(self) -> None:
        self._parts.append(PAGE_BREAK)
        self._follows_break = True


def _starts_page(section: Any) -> bool:
    kind = section.find(f"{_W}type")
    return kind is None or kind.get(f"{_W}val") not in _ON_SAME_PAGE
