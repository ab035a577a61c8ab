"""Small pictures of pages and of what tools returned, to be put into a page for the browser."""

import base64
import contextlib
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from PIL import Image

from drag_ray.corpus import image_store, question_images
from drag_ray.corpus.image_store import ImageStores
from drag_ray.errors import DataError
from drag_ray.storage.file_access import list_folder, reading
from drag_ray.types import Evidence

_SIZE = (240, 320)
_QUALITY = 60
_PREFIX = "data:image/jpeg;base64,"


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture: its key in the stores of images, its file as seen from the page for the browser, and perhaps a small one."""

    key: str
    path: str
    uri: str = ""


class ThumbnailStore:
    """The pictures of the pages of one run, if the folder of its index stage is known, and those that its rollouts have seen:
    `image_dirs` are stores of what tools returned."""

    def __init__(self, index_dir: Path | None, image_dirs: Sequence[Path] = ()) -> None:
        self._pages_path = index_dir / "pages.parquet" if index_dir else None
        of_index = [index_dir / name for name in (image_store.DIR_NAME, question_images.DIR_NAME)] if index_dir else []
        self._images = ImageStores((*of_index, *image_dirs))

    def find(self, pages: Iterable[Evidence], seen_from: Path) -> dict[Evidence, Picture]:
        """The pictures of those of the pages that have one, with paths as seen from a folder; whether their files are still there
        is not looked at. Raises ArtifactError where the pages cannot be read."""
        if self._pages_path is None or not os.path.lexists(self._pages_path):
            return {}
        wanted = pl.DataFrame([(page.file, page.page_number) for page in set(pages)], _KEY_SCHEMA, orient="row")
        with reading(self._pages_path):
            known = pl.scan_parquet(self._pages_path, glob=False).select("file", "page_number", "image")
            found = known.join(wanted.lazy(), on=["file", "page_number"]).filter(pl.col("image") != "")
            rows = found.collect(engine="streaming").iter_rows()
        root = os.path.relpath(self._images.roots[0], seen_from)
        return {Evidence(file, number): Picture(key, f"{root}/{key}") for file, number, key in rows}

    def locate(self, keys: Iterable[str], seen_from: Path) -> dict[str, Picture]:
        """Those of the images that a store has, whatever their keys look like. `seen_from` is as of `find`."""
        found: dict[str, Picture] = {}
        for key in dict.fromkeys(keys):
            with contextlib.suppress(DataError):
                found[key] = Picture(key, f"{os.path.relpath(self._images.find(key).root, seen_from)}/{key}")
        return found

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
            image = Image.open(io.BytesIO(self._images.find(key).read(key)))
            image.draft("RGB", _SIZE)  # a JPEG is decoded at a fraction of its size
            image.thumbnail(_SIZE)
            buffer = io.BytesIO()
            image.convert("RGB").save(buffer, "JPEG", quality=_QUALITY)
        except (DataError, OSError, SyntaxError, Image.DecompressionBombError):
            return ""
        return _PREFIX + base64.b64encode(buffer.getvalue()).decode()


def find_index(path: Path) -> Path | None:
    """The index stage of the run that a path lies in, where there is one."""
    lineage = (path.resolve(), *path.resolve().parents)
    return next((folder / "index" for folder in lineage if (folder / "index").is_dir()), None)


def open_thumbnails(*paths: Path) -> ThumbnailStore:
    """The pictures of the runs that these paths lie in: a run, a stage, a folder of rollouts or one file each. Raises
    ArtifactError where a folder of rollouts cannot be listed."""
    index_dirs = [find_index(path) for path in paths]
    image_dirs = [found for path, index_dir in zip(paths, index_dirs, strict=True) for found in _list_stores(path, index_dir)]
    return ThumbnailStore(next(filter(None, index_dirs), None), list(dict.fromkeys(image_dirs)))


def _list_stores(path: Path, index_dir: Path | None) -> list[Path]:
    """The stores of rollouts below a path, or beside it; never outside of its run."""
    path = path.resolve()
    run_dir = index_dir.parent if index_dir else path.parent
    above = [folder for folder in path.parents if folder.is_relative_to(run_dir)]
    stages = [path / name for name in ("collect", "evaluate")]
    places = [place for place in (path, *stages, *above) if place.is_dir()]
    rollouts = [folder for place in places for folder in (place, *list_folder(place / "rollouts"))]
    return [folder / "images" for folder in rollouts if (folder / "images").is_dir()]


_KEY_SCHEMA = pl.Schema({"file": pl.String, "page_number": pl.Int32})
