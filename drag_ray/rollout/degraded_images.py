"""The pictures that a policy is shown in place of those of the index, where these are made worse (`corpus.image_degradation`)."""

import logging
from dataclasses import replace
from pathlib import Path

from drag_ray.agent.task import RolloutTask
from drag_ray.corpus.image_degradation import DegradationConfig, degrade
from drag_ray.corpus.image_store import ImageStores
from drag_ray.errors import DataError
from drag_ray.rollout.options import WorkerOptions, open_stores
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Hit, Page

_logger = logging.getLogger(__name__)


class DegradedImages:
    """Makes each picture worse that is to be, once, and keeps it in the rollouts' own store. Safe for several threads."""

    def __init__(self, config: DegradationConfig, stores: ImageStores) -> None:
        self._config = config
        self._stores = stores
        self._keys: dict[str, str] = {}

    def replace(self, key: str) -> str:
        """The key of what is shown in place of a picture, its own where that stays, or cannot be read: who opens it says so."""
        if key not in self._keys:
            self._keys[key] = self._make(key)
        return self._keys[key]

    def replace_asked(self, task: RolloutTask) -> RolloutTask:
        """A rollout whose question is asked about these pictures."""
        images = tuple(map(self.replace, task.question.images))
        return replace(task, question=replace(task.question, images=images))

    def _make(self, key: str) -> str:
        try:
            made = degrade(self._stores.open(key), key, self._config)
        except DataError as error:
            _logger.warning("%s", error)
            return key
        return self._stores.write(made) if made else key


def open_degraded_images(options: WorkerOptions) -> DegradedImages | None:
    """Those of a worker; None where its agent sees pictures as they are."""
    stores = open_stores(options)
    return DegradedImages(options.degradation, stores) if stores and options.degradation.share else None


class DegradedSearcher(Searcher):
    """An index whose pages have the pictures of `images`, when they are found or named."""

    def __init__(self, index_dir: Path, images: DegradedImages) -> None:
        super().__init__(index_dir)
        self._images = images

    def page(self, hit: Hit | Evidence) -> Page:
        """As `Searcher.page`."""
        return self._degrade(super().page(hit))

    def find_page(self, file: str, page_number: int) -> Page | None:
        """As `Searcher.find_page`."""
        page = super().find_page(file, page_number)
        return page and self._degrade(page)

    def _degrade(self, page: Page) -> Page:
        return replace(page, image=self._images.replace(page.image)) if page.image else page
