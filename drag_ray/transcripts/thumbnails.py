"""Small pictures of pages, to be put into a page for the browser."""

import base64
import io
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from PIL import Image

from drag_ray.corpus import page_images
from drag_ray.corpus.image_store import ImageStore
from drag_ray.errors import DataError
from drag_ray.types import Evidence

_SIZE = (240, 320)
_QUALITY = 60
_PREFIX = "data:image/jpeg;base64,"


@dataclass(frozen=True, slots=True)
class PagePicture:
    """The picture of a page: its key in the store of page images, and its file as seen from the page for the browser."""

    key: str
    path: str


class PictureBook:
    """The pictures of the pages of one run.

    Args:
        index_dir: the folder of the index stage, None if it is not known: then no page has a picture.
    """

    def __init__(self, index_dir: Path | None) -> None:
        pages = index_dir / "pages.parquet" if index_dir else None
        self._pages = pl.scan_parquet(pages) if pages and pages.is_file() else None
        self._images = ImageStore((index_dir or Path()) / page_images.DIR_NAME)

    def find(self, pages: Iterable[Evidence], seen_from: Path) -> dict[Evidence, PagePicture]:
        """The pictures of those of the pages that have one; whether their files are still there is not looked at.

        Args:
            pages: pages of the collection, or not.
            seen_from: the folder that the paths of the pictures are relative to.
        """
        if self._pages is None:
            return {}
        wanted = pl.DataFrame([(page.file, page.page_number) for page in set(pages)], _KEY_SCHEMA, orient="row")
        found = self._pages.select("file", "page_number", "image").join(wanted.lazy(), on=["file", "page_number"])
        rows = found.filter(pl.col("image") != "").collect(engine="streaming").iter_rows()
        root = os.path.relpath(self._images.root, seen_from)
        return {Evidence(file, number): PagePicture(key, f"{root}/{key}") for file, number, key in rows}

    def draw(self, keys: Iterable[str], budget_bytes: int) -> dict[str, str]:
        """Small pictures as data URIs by their keys, the first ones that take no more than `budget_bytes` together.

        A picture whose file is missing or damaged is left out.
        """
        drawn: dict[str, str] = {}
        for key in dict.fromkeys(keys):
            uri = self._draw(key)
            budget_bytes -= len(uri) + len(key) + len('"":"",')
            if budget_bytes < 0:
                break
            if uri:
                drawn[key] = uri
        return drawn

    def _draw(self, key: str) -> str:
        try:
            image = Image.open(io.BytesIO(self._images.read(key)))
            image.draft("RGB", _SIZE)  # a JPEG is decoded at a fraction of its size
            image.thumbnail(_SIZE)
            buffer = io.BytesIO()
            image.convert("RGB").save(buffer, "JPEG", quality=_QUALITY)
        except (DataError, OSError, SyntaxError):
            return ""
        return _PREFIX + base64.b64encode(buffer.getvalue()).decode()


def find_index(path: Path) -> Path | None:
    """The index stage of the run that a path lies in, where there is one."""
    lineage = (path.resolve(), *path.resolve().parents)
    return next((folder / "index" for folder in lineage if (folder / "index").is_dir()), None)


_KEY_SCHEMA = pl.Schema({"file": pl.String, "page_number": pl.Int32})
