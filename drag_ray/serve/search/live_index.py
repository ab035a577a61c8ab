"""The index that an endpoint searches, and its exchange for a newer one while requests go on.

A stage puts a new index into the place of the old one by renaming folders. So an endpoint reads the folder through a handle,
which stays that of the same folder wherever it is moved: a request sees one index from its beginning to its end. The new one is
opened beside the old one, searched once, and takes its place by one assignment; the old one is closed with its last request.
"""

import asyncio
import logging
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from drag_ray.corpus import image_store, question_images
from drag_ray.errors import DragRayError, ServeError
from drag_ray.search.metadata import read_access_column
from drag_ray.serve.ingress.key import check_groups
from drag_ray.serve.search.search_service import SearchService
from drag_ray.serve.settings import AppSettings, check_index
from drag_ray.stage_runs.damage import refuse_damage
from drag_ray.storage.artifacts import MANIFEST_NAME, require_manifest

_logger = logging.getLogger(__name__)

_Stamp = tuple[int, int, int]


class HeldFolder:
    """A folder as it is now, wherever it is moved: `path` leads there, in this process, until the last reference to this is gone.
    Raises FileNotFoundError where there is no such folder."""

    def __init__(self, place: Path) -> None:
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        weakref.finalize(self, os.close, handle)
        self.path = Path(f"/proc/self/fd/{handle}")
        self.place = place

    def is_in_place(self) -> bool:
        """True if it still is the one that was there."""
        return self.path.samefile(self.place)


@dataclass(frozen=True)
class IndexFolders:
    """The folders of an index, and of its vectors where the stage `embed` made them."""

    index: HeldFolder
    embed: HeldFolder | None = None

    def list_all(self) -> list[HeldFolder]:
        """Both, as far as they are there."""
        return [self.index, *([self.embed] if self.embed else [])]

    def name_places(self, text: str) -> str:
        """A text with the places of the folders instead of what leads there in this process."""
        for folder in self.list_all():
            text = text.replace(str(folder.path), str(folder.place))
        return text


class LiveIndex:
    """The index of an endpoint, which `service` searches. `problem` is what kept a newer one from taking its place; empty if
    nothing did."""

    def __init__(self, settings: AppSettings, open_service: Callable[[IndexFolders], SearchService]) -> None:
        self._settings = settings
        self._open_service = open_service
        self._index_dir = Path(settings.index_dir).parent
        embed_dir = Path(settings.vectors_dir).parent
        self._embed_dir = None if embed_dir == self._index_dir or not settings.vectors_dir else embed_dir
        self.problem = ""
        self._seen = self._read_stamps()
        self.service = self._open(self._hold())

    async def watch(self) -> None:
        """Look for a newer index for ever."""
        while True:
            await asyncio.sleep(self._settings.serve.index_check_s)
            await self.look()

    async def look(self) -> None:
        """Exchange the index if there is a newer one that can be used; one that cannot is looked at again when it changes."""
        stamps = await asyncio.to_thread(self._read_stamps)
        if None in stamps or stamps == self._seen:
            return
        try:
            folders = self._hold()
        except OSError:  # on the move
            return
        try:
            service = await asyncio.to_thread(self._open_newer, folders)
        except Exception as error:  # whatever it is, the old one goes on
            if await asyncio.to_thread(self._read_stamps) == stamps:
                self._seen, self.problem = stamps, folders.name_places(f"{type(error).__name__}: {error}")
                told = "a newer index cannot be used, and the old one is searched as before: %s"
                _logger.error(told, self.problem, exc_info=not isinstance(error, DragRayError))
            return
        replaced, self.service, self._seen, self.problem = self.service, service, stamps, ""
        replaced.index.retire()
        _logger.info("a newer index is searched from now on")

    def _hold(self) -> IndexFolders:
        return IndexFolders(HeldFolder(self._index_dir), HeldFolder(self._embed_dir) if self._embed_dir else None)

    def _open_newer(self, folders: IndexFolders) -> SearchService:
        """The service of what lies there, checked as at the start."""
        for folder in folders.list_all():
            require_manifest(folder.path)
            refuse_damage(folder.path, whole=True, quick_folders=(image_store.DIR_NAME, question_images.DIR_NAME))
        check_groups(self._settings.keys, read_access_column(folders.index.path / "search_index"))
        check_index(folders.index.path, folders.embed.path if folders.embed else None, self._settings)
        service = self._open(folders)
        service.index.warm_up(self.service.index)
        return service

    def _open(self, folders: IndexFolders) -> SearchService:
        """The service of folders that stay where they are meanwhile: Tantivy opens its own by the place, not by the handle."""
        service = self._open_service(folders)
        if not all(folder.is_in_place() for folder in folders.list_all()):
            raise ServeError(f"{self._index_dir}: another index took its place while it was opened.")
        return service

    def _read_stamps(self) -> list[_Stamp | None]:
        """Stamps that change with each finished work of the stages; None for one that is not finished at this moment."""
        return [_read_stamp(folder / MANIFEST_NAME) for folder in (self._index_dir, self._embed_dir) if folder]


def _read_stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
