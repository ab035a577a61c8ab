"""The styles of a Word document, each with those that it is based on."""

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

    def list_bases(self, style_id: str) -> Iterator[Any]:
        """The style of this id, and the styles that it is based on."""
        for _ in range(_MOST_BASES):
            style = self._styles.get(style_id)
            if style is None:
                return
            yield style
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
            for style in self.list_bases("" if properties is None else read_value(properties, kind)):
                of_style = style.find(f"{_W}rPr")
                if of_style is not None:
                    yield of_style


def read_value(element: Any, name: str) -> str:
    """The value of a child of this name; empty for none."""
    child = element.find(f"{_W}{name}")
    return "" if child is None else child.get(f"{_W}val", "")
