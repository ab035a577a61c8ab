"""The parts of a `.docx`, read one by one: a part that is missing, or a relationship that leads nowhere, costs nothing else."""

import posixpath
import zipfile
from pathlib import Path
from typing import Any

from lxml.etree import XMLParser, fromstring

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
    """An open `.docx`. Use it as a context manager.

    Args:
        path: the file.
        max_bytes: that its texts may hold, unpacked.

    Raises:
        DataError: it is no `.docx`, or holds more.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        if not zipfile.is_zipfile(path):
            raise DataError("is no .docx: of an older format, encrypted or damaged. Save it as .docx without a password.")
        self._archive = zipfile.ZipFile(path)
        # Of each file no more is read than what is said here.
        texts = (item.file_size for item in self._archive.infolist() if item.filename.endswith((".xml", ".rels")))
        check_size(sum(texts), max_bytes)
        self._names = set(self._archive.namelist())
        found = self._list_targets("")
        self._main = found.get("officeDocument", "word/document.xml")
        self._targets = self._list_targets(self._main)

    def __enter__(self) -> "WordPackage":
        return self

    def __exit__(self, *exception: object) -> None:
        self._archive.close()

    def read_body(self) -> Any:
        """The root of the main part.

        Raises:
            DataError: there is none.
        """
        if self._main not in self._names:
            raise DataError(f"is no .docx: holds no {self._main}. Repair it or remove it.")
        return self._parse(self._main)

    def read_part(self, kind: str) -> Any | None:
        """The root of a part that the main part refers to, such as `numbering`; None where it has none that is there."""
        name = self._targets.get(kind, "")
        return self._parse(name) if name in self._names else None

    def _list_targets(self, name: str) -> dict[str, str]:
        """The parts that a part (empty: the package) refers to, by the last word of the relationship's type."""
        folder, _, file = name.rpartition("/")
        path = posixpath.join(folder, "_rels", f"{file}.rels")
        if path not in self._names:
            return {}
        targets: dict[str, str] = {}
        for item in self._parse(path):
            if item.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", folder, item.get("Target", ""))).lstrip("/")
                targets.setdefault(item.get("Type", "").rpartition("/")[2], target)
        return targets

    def _parse(self, name: str) -> Any:
        data = self._archive.read(name)
        for strict, usual in _STRICT.items():
            data = data.replace(strict, usual)
        return fromstring(data, XMLParser(resolve_entities=False, no_network=True, remove_comments=True))


def check_size(num_bytes: int, max_bytes: int) -> None:
    """DataError where a document holds more than one may."""
    if num_bytes > max_bytes:
        raise DataError(f"holds more than {max_bytes >> 20:,} MiB (corpus.document_text_mib). Split it or remove it.")
