"""Images that questions carry: read where a row names them, and put into a store."""

import base64
import binascii
import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.picture import MAX_BYTES, read_picture
from drag_ray.corpus.records import Record, read_records
from drag_ray.errors import DataError

DIR_NAME = "question_images"
MAX_IMAGES = 8
"""images of a question at most"""
IMAGE_COLUMNS = ("image", "images")
_DATA_URL = re.compile(r"data:[^,]{0,200};base64,(?P<data>.*)", re.DOTALL)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class QuestionImages:
    """Puts the images of questions into a store.

    Args:
        folders: what paths are relative to; the first that has the file counts, and nothing outside of them is read.
        max_pixels: pixels of an image at most; a larger one is scaled down.
    """

    def __init__(self, store: ImageStore, folders: Sequence[Path], max_pixels: int) -> None:
        self._store = store
        self._folders = [folder.resolve() for folder in folders]
        self._max_pixels = max_pixels

    def keep(self, record: Record) -> tuple[str, ...]:
        """The keys of the images of a row, those of `image` before those of `images`.

        Each is a path, a `data:` URL, bytes, or `{"bytes": ...}` or `{"path": ...}` as data sets have it.

        Raises:
            DataError: one of them cannot be read; says which.
            ArtifactError: one cannot be written.
        """
        named = [(name, item) for name in IMAGE_COLUMNS for item in _to_list(record.get(name))]
        if len(named) > MAX_IMAGES:
            raise DataError(f"got {len(named)} images, expected at most {MAX_IMAGES} of a question")
        return tuple(self._keep_one(name, item) for name, item in named)

    def _keep_one(self, name: str, item: Any) -> str:
        try:
            return self._store.write(read_picture(self._read(item), self._max_pixels))
        except DataError as error:
            raise DataError(f"column {name!r}: {error}") from None

    def _read(self, item: Any) -> bytes:
        if isinstance(item, dict):
            item = item["bytes"] if item.get("bytes") is not None else item.get("path")
        if isinstance(item, bytes):
            return item
        if not isinstance(item, str) or not item:
            raise DataError(f"got {item!r:.60} ({type(item).__name__}), expected a path, a data: URL or bytes")
        if item.startswith("data:"):
            return decode_data_url(item)
        if _ADDRESS.match(item):
            raise DataError(f"got the address {item!r:.80}; nothing is fetched. Give a file or a data: URL.")
        return self._read_file(item)

    def _read_file(self, name: str) -> bytes:
        if "\0" in name:
            raise DataError(f"got {name!r:.80}, expected a path")
        if path := _find_file(name, self._folders):
            with path.open("rb") as stream:
                return stream.read(MAX_BYTES + 1)
        where = " or ".join(map(str, self._folders))
        raise DataError(f"no file {name!r:.200} in {where}, beyond which nothing is read")


def list_folders(questions_path: Path, documents: Path) -> tuple[Path, Path]:
    """The folders that images of questions may lie in: that of their table, and that of the documents."""
    return questions_path.parent, documents if documents.is_dir() else documents.parent


def list_files(questions_path: Path, folders: Sequence[Path]) -> list[Path]:
    """The files that the rows of a table of questions name as their images; what cannot be read names none."""
    named: dict[str, None] = {}
    for _, names in read_records(questions_path, _list_names, IMAGE_COLUMNS):
        named |= dict.fromkeys(names) if isinstance(names, list) else {}
    folders = [folder.resolve() for folder in folders]
    return [path for name in named if (path := _find_file(name, folders))]


def _list_names(record: Record) -> list[str]:
    items = [item for name in IMAGE_COLUMNS for item in _to_list(record.get(name))]
    paths = [item.get("path") if isinstance(item, dict) and item.get("bytes") is None else item for item in items]
    return [path for path in paths if isinstance(path, str) and not path.startswith("data:")]


def _find_file(name: str, folders: Sequence[Path]) -> Path | None:
    """The first file of that name that lies in one of the folders, which are resolved."""
    for folder in folders:
        with contextlib.suppress(OSError, ValueError):  # a loop of links, a name that is too long or holds a NUL
            path = (folder / name).resolve()
            if path.is_relative_to(folder) and path.is_file():
                return path
    return None


def decode_data_url(text: str) -> bytes:
    """Bytes of a `data:` URL. Raises DataError: it is not in base64, or too long."""
    found = _DATA_URL.fullmatch(text) if len(text) <= MAX_BYTES * 4 // 3 + 300 else None
    if found is None:
        raise DataError(f"got {text!r:.60}, expected data:image/...;base64,... of at most {MAX_BYTES:,} bytes")
    try:
        return base64.b64decode(found["data"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"got a data: URL whose base64 cannot be read ({error})") from None


def _to_list(value: Any) -> list[Any]:
    if value is None or value == "":
        return []
    return list(value) if isinstance(value, list) else [value]
