"""The styles of a Word document, each with those that it is based on, and the numbers that Word puts before the paragraphs of
lists and headings: they stand in no text, but a reader sees them."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MOST_BASES = 20
"""Styles that a style may be based on, one after the other."""


class WordStyles:
    """Properties that paragraphs and runs take from styles.

    Args:
        root: of the part `styles`; None where there are none.
    """

    def __init__(self, root: Any | None) -> None:
        found = () if root is None else root.iter(f"{_W}style")
        self._styles = {style.get(f"{_W}styleId", ""): style for style in found}

    def list_properties(self, style_id: str, name: str) -> Iterator[Any]:
        """The properties of this name, of the style of this id and of the styles that it is based on."""
        for _ in range(_MOST_BASES):
            style = self._styles.get(style_id)
            if style is None:
                return
            if (properties := style.find(f"{_W}{name}")) is not None:
                yield properties
            style_id = read_value(style, "basedOn")

    def find_of_run(self, run: Any, name: str) -> Any | None:
        """The property of a run: its own, that of its style, or that of its paragraph's; None where nothing says it."""
        found = (properties.find(f"{_W}{name}") for properties in self._list_run_properties(run))
        return next((item for item in found if item is not None), None)

    def _list_run_properties(self, run: Any) -> Iterator[Any]:
        own, paragraph = run.find(f"{_W}rPr"), next(run.iterancestors(f"{_W}p"), None)
        if own is not None:
            yield own
        of_paragraph = None if paragraph is None else paragraph.find(f"{_W}pPr")
        for properties, kind in ((own, "rStyle"), (of_paragraph, "pStyle")):
            yield from self.list_properties("" if properties is None else read_value(properties, kind), "rPr")


def read_value(element: Any, name: str) -> str:
    """The value of a child of this name; empty for none."""
    child = element.find(f"{_W}{name}")
    return "" if child is None else child.get(f"{_W}val", "")


_PLACE = re.compile(r"%([1-9])")
_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc")),
    *((50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)
_MOST_ROMAN, _MOST_LETTERS = 4999, 26 * 26


def write_number(number: int, form: str) -> str:
    """A number as Word and HTML name its form: decimal, lowerLetter, upperRoman and the like; decimal for those unknown."""
    if form.endswith("Roman") and 0 < number <= _MOST_ROMAN:
        text = ""
        for value, letters in _ROMAN:
            text += letters * (number // value)
            number %= value
    elif form.endswith("Letter") and 0 < number <= _MOST_LETTERS:
        text = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)  # Word goes on with aa, bb
    else:
        return f"{number:02}" if form == "decimalZero" else str(number)
    return text.upper() if form.startswith("upper") else text


class WordNumbers:
    """Counts the numbered paragraphs of a document in their order.

    Args:
        numbering: the root of its part `numbering`; None where it has no lists.
        styles: those of the document, by which headings are numbered.
    """

    def __init__(self, numbering: Any | None, styles: WordStyles) -> None:
        self._lists: dict[str, str] = {}
        self._levels: dict[str, dict[int, Any]] = {}
        self._starts: dict[tuple[str, int], int] = {}
        self._counts: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._begun: set[str] = set()
        self._styles = styles
        for item in () if numbering is None else numbering:
            if item.tag == f"{_W}abstractNum":
                levels = {_read_int(level.get(f"{_W}ilvl")): level for level in item.iter(f"{_W}lvl")}
                self._levels[item.get(f"{_W}abstractNumId", "")] = levels
            elif item.tag == f"{_W}num":
                self._read_list(item)

    def _read_list(self, item: Any) -> None:
        list_id = item.get(f"{_W}numId", "")
        self._lists[list_id] = read_value(item, "abstractNumId")
        for override in item.iter(f"{_W}lvlOverride"):
            start = read_value(override, "startOverride")
            if start:
                self._starts[list_id, _read_int(override.get(f"{_W}ilvl"))] = _read_int(start)

    def next(self, paragraph: Any) -> str:
        """The number of a paragraph, with a blank after it; empty where it is not numbered, or has a bullet."""
        list_id, level = self._find_list(paragraph)
        kind = self._lists.get(list_id, "")
        levels = self._levels.get(kind, {})
        if level not in levels:
            return ""
        counts = self._counts[kind]  # lists of one kind go on counting, unless one says where it starts
        if list_id not in self._begun:
            self._begun.add(list_id)
            if starts := {at: start - 1 for (of, at), start in self._starts.items() if of == list_id}:
                counts.clear()
                counts.update(starts)
        for deeper in [other for other in counts if other > level]:
            del counts[deeper]
        counts[level] = counts.get(level, self._read_start(levels[level]) - 1) + 1
        if read_value(levels[level], "numFmt") in ("bullet", "none"):
            return ""
        text = _PLACE.sub(
            lambda match: self._write_place(levels, counts, int(match[1]) - 1), read_value(levels[level], "lvlText")
        )
        return f"{text} " if text.strip() else ""

    def _write_place(self, levels: dict[int, Any], counts: dict[int, int], level: int) -> str:
        if level not in levels:
            return ""
        return write_number(counts.get(level, self._read_start(levels[level])), read_value(levels[level], "numFmt"))

    def _read_start(self, level: Any) -> int:
        return _read_int(read_value(level, "start") or "1")

    def _find_list(self, paragraph: Any) -> tuple[str, int]:
        """The list of a paragraph and its level there, by its own properties or those of its style."""
        own = paragraph.find(f"{_W}pPr")
        for properties in () if own is None else (own, *self._styles.list_properties(read_value(own, "pStyle"), "pPr")):
            of_list = properties.find(f"{_W}numPr")
            if of_list is not None:
                return read_value(of_list, "numId"), _read_int(read_value(of_list, "ilvl"))
        return "", 0


def _read_int(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 10 else 0
