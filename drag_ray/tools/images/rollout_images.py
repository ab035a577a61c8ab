"""The images of one rollout: `image_1`, `image_2` and so on, in the order in which the policy saw them."""

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from drag_ray.errors import DataError, ToolError
from drag_ray.tools.observation import ObservedImage

if TYPE_CHECKING:
    from PIL.Image import Image


MAX_PIXELS = 4_000_000
"""of an image that a tool returns"""
MIN_EDGE = 28
"""pixels of an image's shorter edge: vision encoders cut images into pieces of that size"""
MAX_RATIO = 100
"""of the longer edge of an image to its shorter one: image processors refuse 200"""
_CAPTION_CHARS = 200

_logger = logging.getLogger(__name__)


class ImageSource(Protocol):
    """Storage of a rollout's images: the stores of a run, or the memory of an endpoint."""

    def open(self, key: str) -> "Image":
        """An image, decoded. Raises DataError where there is none of this key."""
        ...

    def write(self, image: "Image") -> str:
        """Keep an image (RGB or grey) and return its key, a hash of it. Raises ToolError where there is no room."""
        ...


class StoredImage(NamedTuple):
    """An image that a tool has returned: its key in the stores of the run, and what it is."""

    key: str
    caption: str


class RolloutImages:
    """The images of a rollout by their names: those of the question (`keys`) and at most so many that tools return, of which new
    ones go into the first of the stores. `dismissed` are the places, among all images so far, of those that the policy wants to
    see no longer."""

    def __init__(self, stores: ImageSource | None = None, max_returned: int = 0, keys: Iterable[str] = ()) -> None:
        self._stores = stores
        self._max_returned = max_returned
        self._num_returned = 0
        self._keys = list(keys)
        self._num_asked = len(self._keys)
        self.dismissed: frozenset[int] = frozenset()

    @property
    def names(self) -> list[str]:
        """The names in their order."""
        return [name_image(place) for place in range(len(self._keys))]

    def open(self, name: str) -> "Image":
        """The image of a name, in RGB. Raises ToolError where there is none, or it cannot be read."""
        return self.open_key(self._keys[self._find(name)]).convert("RGB")

    def open_key(self, key: str) -> "Image":
        """An image of the run by its key. Raises ToolError where it cannot be read."""
        from PIL.Image import DecompressionBombError

        if self._stores is None:
            raise ToolError("this agent is shown no images")
        try:
            return self._stores.open(key)
        except (DataError, OSError, DecompressionBombError) as error:
            _logger.warning("%s", error)
            raise ToolError("the picture cannot be read") from error

    def store(self, images: Sequence[ObservedImage]) -> tuple[StoredImage, ...]:
        """Put what a tool returned into the run's store; without a name, as the call may still turn out to be late. Raises
        ToolError where there are too many images, or one is none that a model can be shown."""
        if len(images) > self._max_returned - self._num_returned:
            raise ToolError(
                f"{len(images)} more image{'s' * (len(images) != 1)} cannot be shown: of the {self._max_returned} that tools may "
                f"return in a rollout, {self._num_returned} are there"
            )
        return tuple(self._store_one(image) for image in images)

    def show(self, image: StoredImage) -> str:
        """Take in an image that a tool has returned; returns its name."""
        self._num_returned += 1
        return self.add(image.key)

    def add(self, key: str) -> str:
        """Take in an image that the policy is shown; returns its name."""
        self._keys.append(key)
        return name_image(len(self._keys) - 1)

    def check(self, names: Iterable[str]) -> None:
        """Raises ToolError for a name that no image has."""
        for name in names:
            self._find(name)

    def keep_only(self, names: Iterable[str]) -> None:
        """Dismiss all images but these and those of the question, which stay."""
        kept = {self._find(name) for name in names}
        self.dismissed = frozenset(range(self._num_asked, len(self._keys))) - kept

    def _find(self, name: str) -> int:
        if name not in (names := self.names):
            have = (
                f"there are {names[0]} to {names[-1]}" if len(names) > 1 else f"there is {names[0]}" if names else "there is none"
            )
            raise ToolError(f"no image {name[:80]!r}: {have}")
        return names.index(name)

    def _store_one(self, image: ObservedImage) -> StoredImage:
        caption = " ".join(image.caption.split())[:_CAPTION_CHARS]
        if isinstance(image.picture, str):
            self.open_key(image.picture)
            return StoredImage(image.picture, caption)
        if self._stores is None:
            raise ToolError("this agent is shown no images")
        return StoredImage(self._stores.write(fit_for_model(image.picture)), caption)


def name_image(place: int) -> str:
    """The name of an image by its place, from 0."""
    return f"image_{place + 1}"


def fit_for_model(image: "Image") -> "Image":
    """The image in RGB; one with a very short edge is enlarged. Raises ToolError where it is too large, empty, or far longer than
    wide."""
    from PIL.Image import Resampling

    width, height = image.size
    check_size(width, height)
    image = image.convert("RGB")
    if min(width, height) >= MIN_EDGE:
        return image
    scale = MIN_EDGE / min(width, height)
    return image.resize((max(MIN_EDGE, round(width * scale)), max(MIN_EDGE, round(height * scale))), Resampling.LANCZOS)


def check_size(width: int, height: int) -> None:
    """Raises ToolError for an image that no model is shown: too large, empty, or far longer than wide."""
    if not width or not height:
        raise ToolError("the image would have no pixels")
    if width * height > MAX_PIXELS:
        raise ToolError(f"the image would have {width:,} x {height:,} pixels, and {MAX_PIXELS:,} are allowed")
    if max(width, height) > MAX_RATIO * min(width, height):
        raise ToolError(f"the image would have {width:,} x {height:,} pixels: one edge is more than {MAX_RATIO} times the other")
