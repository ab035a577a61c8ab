"""The images of requests under way: those of the index lie on its disk, those that tools return are in memory while it lasts."""

import io
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from drag_ray.corpus import page_images, question_images
from drag_ray.corpus.image_store import ImageStores, encode
from drag_ray.errors import ToolError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_BYTES = 1 << 30
"""of what the tools of all requests have returned; beyond it their calls fail until some of them end"""


class EndpointImages:
    """Opens images for the engine and for the requests of one endpoint, from any thread. Nothing is written to the disk.

    Args:
        index_dir: the folder of the index stage.
        max_bytes: of what tools have returned.
    """

    def __init__(self, index_dir: Path, max_bytes: int = MAX_BYTES) -> None:
        self._stores = ImageStores([index_dir / name for name in (page_images.DIR_NAME, question_images.DIR_NAME)])
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._returned: dict[str, bytes] = {}
        self._requests: dict[RequestImages, set[str]] = {}

    def open(self, key: str) -> "Image":
        """An image, decoded.

        Raises:
            DataError: there is none of this key, or it is damaged.
        """
        from PIL import Image

        data = self._returned.get(key)
        if data is None:
            return self._stores.open(key)
        image = Image.open(io.BytesIO(data))
        image.load()
        return image

    @contextmanager
    def begin(self) -> Generator["RequestImages"]:
        """The images of a request; what its tools have returned is forgotten at its end, unless another one has it, too."""
        request = RequestImages(self)
        with self._lock:
            self._requests[request] = set()
        try:
            yield request
        finally:
            with self._lock:
                keys = self._requests.pop(request)
                for key in keys.difference(*self._requests.values()):
                    del self._returned[key]

    def hold(self, request: "RequestImages", key: str, data: bytes) -> None:
        """Keep an image as long as a request lasts.

        Raises:
            ToolError: there is no room for it, or the request is over, whose tools may still run.
        """
        with self._lock:
            if request not in self._requests:
                raise ToolError("the request is over")
            if key not in self._returned and sum(map(len, self._returned.values())) + len(data) > self._max_bytes:
                raise ToolError("the endpoint has no room for another image at this moment")
            self._returned[key] = data
            self._requests[request].add(key)


class RequestImages:
    """The images of one request, as its rollout opens and writes them."""

    def __init__(self, images: EndpointImages) -> None:
        self._images = images

    def open(self, key: str) -> "Image":
        """As `EndpointImages.open`."""
        return self._images.open(key)

    def write(self, image: "Image") -> str:
        """Keep an image (RGB or grey) as long as the request lasts, and return its key.

        Raises:
            ToolError: as `EndpointImages.hold`.
        """
        key, data = encode(image)
        self._images.hold(self, key, data)
        return key
