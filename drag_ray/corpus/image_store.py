"""Stores of images, addressed by the hash of their bytes: equal images are one file, and a file never changes.

page_images/
  3f/3f8a...c1.jpg    JPEG; the key of an image is its path in this folder, and the same in every store
"""

import hashlib
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from PIL import Image

from drag_ray.errors import DataError
from drag_ray.storage import artifacts
from drag_ray.storage.file_access import list_folder, writing

DIR_NAME = "page_images"
"""of the pictures of pages, beside the index"""
_QUALITY = 90
_KEY = re.compile(r"[0-9a-f]{2}/[0-9a-f]{32}\.jpg")


class ImageStore:
    """A folder of images."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, image: Image.Image) -> str:
        """Keep an image (RGB or grey) and return its key."""
        key, data = encode(image)
        if not (self.root / key).exists():
            artifacts.write_bytes(self.root / key, data)
        return key

    def read(self, key: str) -> bytes:
        """The JPEG of an image. Raises DataError: the key is none, or its file is missing or not what was written."""
        _check_key(key)
        try:
            data = (self.root / key).read_bytes()
        except OSError as error:
            raise DataError(f"{self.root / key}: no such image ({error.strerror}). {_name_remedy(self.root)}") from None
        digest = _compute_digest(data)
        if not key.endswith(f"/{digest}.jpg"):
            raise DataError(f"{self.root / key}: damaged: the hash of its bytes is {digest}. {_name_remedy(self.root)}")
        return data

    def list_keys(self) -> list[str]:
        """The keys of all images, in order. Raises ArtifactError: a folder cannot be listed."""
        paths = (path for folder in list_folder(self.root, "[0-9a-f]" * 2) for path in list_folder(folder))
        return [key for path in paths if is_key(key := path.relative_to(self.root).as_posix())]

    def take_over(self, other: Path, keys: Iterable[str] | None = None) -> None:
        """Have images of another store as well, without a copy where both are on one file system.

        Args:
            keys: of those that are taken; all where nothing is said.

        Raises:
            ArtifactError: a folder of the other store cannot be listed, or an image cannot be written.
        """
        for key in ImageStore(other).list_keys() if keys is None else keys:
            path, target = other / key, self.root / key
            if target.exists():
                continue
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
            artifacts.link_file(path, target)

    def open(self, key: str) -> Image.Image:
        """An image, decoded. Raises DataError: the key is none, or its file is missing or not what was written."""
        image = Image.open(io.BytesIO(self.read(key)))
        image.load()
        return image


class ImageSupply(Protocol):
    """Images that are not in folders which this machine sees."""

    def fetch(self, key: str, path: Path) -> bool:
        """Bring an image into a file of this machine. False where there is no such image."""
        ...

    def keep(self, key: str, path: Path) -> None:
        """Take an image that is new in a file of this machine."""
        ...


class ImageStores:
    """Several stores as one: an image is taken from the first that has it, and a new one goes into the first.

    Args:
        roots: the folders; they need not be there.
        supply: where else images come from, into the first, and go to from there.
    """

    def __init__(self, roots: Sequence[Path], supply: ImageSupply | None = None) -> None:
        self.roots = tuple(roots)
        self.supply = supply

    def write(self, image: Image.Image) -> str:
        """Keep an image (RGB or grey) and return its key."""
        key = ImageStore(self.roots[0]).write(image)
        if self.supply:
            self.supply.keep(key, self.roots[0] / key)
        return key

    def find(self, key: str) -> ImageStore:
        """The store of an image. Raises DataError: the key is none, or no store has it."""
        _check_key(key)
        found = next((root for root in self.roots if (root / key).is_file()), None)
        if found is None and self.supply and self.supply.fetch(key, self.roots[0] / key):
            found = self.roots[0]
        if found is None:
            remedies = " or ".join(dict.fromkeys(map(_name_remedy, self.roots)))
            raise DataError(f"{key}: no such image in {', '.join(map(str, self.roots)) or 'any store'}. {remedies}")
        return ImageStore(found)

    def open(self, key: str) -> Image.Image:
        """An image, decoded. Raises DataError: the key is none, or its file is missing or not what was written."""
        return self.find(key).open(key)


def _name_remedy(root: Path) -> str:
    """The remedy if a store lacks an image: to run the stage in whose folder it is."""
    stage_dir = next((folder for folder in root.parents if (folder / artifacts.IDENTITY_NAME).exists()), root.parent)
    return f"Run: {artifacts.read_command(stage_dir)}"


def encode(image: Image.Image) -> tuple[str, bytes]:
    """The key of an image (RGB or grey), and its JPEG."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=_QUALITY)
    digest = _compute_digest(buffer.getbuffer())
    return f"{digest[:2]}/{digest}.jpg", buffer.getvalue()


def is_key(key: str) -> bool:
    """True if a text can be an image's key, and so leads out of no store."""
    return bool(_KEY.fullmatch(key))


def _check_key(key: str) -> None:
    if not is_key(key):
        raise DataError(f"image {key!r:.80}: not a key. Pages have pictures with --corpus.page-images.")


def _compute_digest(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
