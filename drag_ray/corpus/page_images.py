"""Page images, addressed by the hash of their bytes: equal images are one file, and a file never changes.

page_images/
  3f/3f8a...c1.jpg    JPEG; the key of a page's image is its path in this folder
"""

import hashlib
import io
import math
import re
from pathlib import Path

from PIL import Image

from drag_ray import artifacts
from drag_ray.errors import DataError

DIR_NAME = "page_images"
_QUALITY = 90
# A JPEG cannot be longer than 65,500 pixels, and nothing reads one that is nearly as long.
_MAX_EDGE = 16_000
_REMEDY = "Run: python jobs/index.py --verify"
_KEY = re.compile(r"[0-9a-f]{2}/[0-9a-f]{32}\.jpg")


class PageImages:
    """The store of a run's page images.

    Args:
        root: `page_images/` in the folder of the index stage.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, image: Image.Image) -> str:
        """Keep an image (RGB or grey) and return its key."""
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=_QUALITY)
        digest = _compute_digest(buffer.getbuffer())
        key = f"{digest[:2]}/{digest}.jpg"
        if not (self.root / key).exists():
            artifacts.write_bytes(self.root / key, buffer.getvalue())
        return key

    def read(self, key: str) -> bytes:
        """The JPEG of a page whose `image` is `key`.

        Raises:
            DataError: the key is none, or its file is missing or not what was written.
        """
        if not _KEY.fullmatch(key):
            raise DataError(f"page image {key!r}: not a key. Build the index with --corpus.page-images.")
        try:
            data = (self.root / key).read_bytes()
        except OSError as error:
            raise DataError(f"{self.root / key}: no such page image ({error.strerror}). {_REMEDY}") from None
        digest = _compute_digest(data)
        if not key.endswith(f"/{digest}.jpg"):
            raise DataError(f"{self.root / key}: damaged: the hash of its bytes is {digest}. {_REMEDY}")
        return data

    def open(self, key: str) -> Image.Image:
        """The image of a page whose `image` is `key`, decoded.

        Raises:
            DataError: the key is none, or its file is missing or not what was written.
        """
        image = Image.open(io.BytesIO(self.read(key)))
        image.load()
        return image


def _compute_digest(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def compute_scale(width: float, height: float, scale: float, max_pixels: int) -> float:
    """The scale, at most `scale`, at which a page of `width` x `height` has `max_pixels` or less, edges rounded up.

    No edge becomes longer than 16,000 pixels either.
    """
    # ceil(x) < x + 1, so the largest root of (width s + 1)(height s + 1) = max_pixels is safe.
    area, edges = width * height, width + height
    fitting = (math.sqrt(edges**2 + 4 * area * (max_pixels - 1)) - edges) / (2 * area)
    return min(scale, fitting, (_MAX_EDGE - 1) / max(width, height))
