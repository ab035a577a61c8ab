"""The images of requests under way: those of the index lie on its disk, those that are sent or that tools return in memory."""

import asyncio
import io
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from drag_ray.corpus import image_store, question_images
from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import ImageStores, encode
from drag_ray.corpus.picture import read_picture
from drag_ray.errors import DataError, ToolError
from drag_ray.serve.ingress.limits import RefusalError
from drag_ray.storage.artifacts import read_manifest
from drag_ray.tools.images.rollout_images import fit_for_model

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_BYTES = 1 << 30
"""of what all requests have sent and their tools have returned; beyond it there is no room until some of them end"""


class SentImages:
    """Reads the images that requests send as those of collected questions were read, one at a time: before it is scaled down each
    may be large. Nothing is fetched. `index_dir`: the folder of the index stage, whose manifest says how many pixels these have
    at most."""

    def __init__(self, index_dir: Path) -> None:
        manifest = read_manifest(index_dir)
        options = manifest.origin.get("config", {}).get("corpus", {}) if manifest else {}
        self._max_pixels: int = options.get("page_image_max_pixels", CorpusConfig().page_image_max_pixels)
        self._reading = asyncio.Lock()

    async def read(self, urls: Sequence[str]) -> list["Image"]:
        """The pictures of data: URLs. Raises RefusalError where one is none, or none that a model can be shown; says which."""
        found: list[Image] = []
        for place, url in enumerate(urls):
            try:
                async with self._reading:
                    found.append(await asyncio.to_thread(self._read_one, url))
            except (DataError, ToolError) as error:
                raise RefusalError(400, f"images.{place}: {error}.") from None
        return found

    def _read_one(self, url: str) -> "Image":
        return fit_for_model(read_picture(question_images.decode_data_url(url), self._max_pixels))


class EndpointImages:
    """Opens images for the engine and for the requests of one endpoint, from any thread: those below the folder of the index
    stage, and at most `max_bytes` that were sent or that tools have returned. Nothing is written to the disk."""

    def __init__(self, index_dir: Path, max_bytes: int = MAX_BYTES) -> None:
        self._stores = ImageStores([index_dir / name for name in (image_store.DIR_NAME, question_images.DIR_NAME)])
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._held: dict[str, bytes] = {}
        self._requests: dict[RequestImages, set[str]] = {}

    def open(self, key: str) -> "Image":
        """An image, decoded. Raises DataError where there is none of this key, or it is damaged."""
        from PIL import Image

        data = self._held.get(key)
        if data is None:
            return self._stores.open(key)
        image = Image.open(io.BytesIO(data))
        image.load()
        return image

    @contextmanager
    def begin(self) -> Generator["RequestImages"]:
        """The images of a request; what it holds is forgotten at its end, unless another one has it, too."""
        request = RequestImages(self)
        with self._lock:
            self._requests[request] = set()
        try:
            yield request
        finally:
            with self._lock:
                keys = self._requests.pop(request)
                for key in keys.difference(*self._requests.values()):
                    del self._held[key]

    def hold(self, request: "RequestImages", key: str, data: bytes) -> None:
        """Keep an image as long as a request lasts. Raises ToolError where there is no room for it, or the request is over, whose
        tools may still run."""
        with self._lock:
            if request not in self._requests:
                raise ToolError("the request is over")
            if key not in self._held and sum(map(len, self._held.values())) + len(data) > self._max_bytes:
                raise ToolError("the endpoint has no room for another image at this moment")
            self._held[key] = data
            self._requests[request].add(key)


class RequestImages:
    """The images of one request, as its rollout opens and writes them."""

    def __init__(self, images: EndpointImages) -> None:
        self._images = images

    def open(self, key: str) -> "Image":
        """As `EndpointImages.open`."""
        return self._images.open(key)

    def write(self, image: "Image") -> str:
        """Keep an image (RGB or grey) as long as the request lasts, and return its key. Raises ToolError as
        `EndpointImages.hold`."""
        key, data = encode(image)
        self._images.hold(self, key, data)
        return key

    async def hold(self, sent: Sequence["Image"]) -> tuple[str, ...]:
        """The keys of what the request sends. Raises RefusalError where there is no room for it."""
        try:
            return tuple([await asyncio.to_thread(self.write, image) for image in sent])
        except ToolError as error:
            raise RefusalError(503, f"images: {error}.") from None
