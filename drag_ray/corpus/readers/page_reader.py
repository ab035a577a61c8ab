"""Processing of pages that can be rendered: OCR of the text where it is needed, and storage of the image."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PIL import Image

from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.readers import ocr
from drag_ray.corpus.text import clean_text, count_letters
from drag_ray.errors import DataError
from drag_ray.types import Page

Render = Callable[[float, int], Image.Image]
"""Renders a page in RGB at (dots per inch, pixels at most)."""


class PageReader:
    """Finishes pages of PDFs and images as the options of OCR and page images say."""

    def __init__(self, config: CorpusConfig, images: ImageStore) -> None:
        self.config = config
        self._images = images

    def check_length(self, path: Path, num_pages: int) -> None:
        """DataError where a document says that it has more pages than one may have; most of them are not there."""
        if num_pages > self.config.document_pages:
            raise DataError(
                f"{path}: says that it has {num_pages:,} pages, at most {self.config.document_pages:,} are read. "
                "Remove it, or raise corpus.document_pages."
            )

    def read(self, page: Page, render: Render, use_ocr: bool, is_readable: bool = True) -> Page:
        """The page with the text that OCR finds if `use_ocr`, and with its image if the options ask for page images.

        OCR's text replaces the text layer if it holds more, half as much where that `is_readable` to nobody, or, with `always`,
        if it holds anything.

        Raises:
            ArtifactError: the image cannot be written. Whatever rendering a damaged page or reading it raises passes through.
        """
        if use_ocr:
            text = clean_text(ocr.recognise(render(ocr.DPI, ocr.MAX_PIXELS)))
            known = 0 if self.config.ocr == "always" else count_letters(page.text)
            if count_letters(text) > (known if is_readable else known // 2):
                page = replace(page, text=text, text_source="ocr")
        if self.config.page_images:
            image = render(self.config.page_image_dpi, self.config.page_image_max_pixels)
            page = replace(page, image=self._images.write(image))
        return page
