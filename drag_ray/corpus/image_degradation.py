"""Image degradation, to measure how much a policy loses by it, or to have it learn to restore what it cannot read.

OpenSearch-VL (https://github.com/shawn0728/OpenSearch-VL) degrades a tenth of its images at random, and pairs each kind with a
tool that restores it.
"""

import io
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from drag_ray.config import BaseConfig

if TYPE_CHECKING:
    from PIL.Image import Image

_MIN_EDGE = 28
"""pixels of an edge below which vision encoders take no image"""


def _blur(image: "Image", draw: random.Random) -> "Image":
    from PIL import ImageFilter

    return image.filter(ImageFilter.GaussianBlur(draw.uniform(1.5, 3.0)))


def _downscale(image: "Image", draw: random.Random) -> "Image":
    factor = min(1.0, max(draw.uniform(0.2, 0.4), _MIN_EDGE / min(image.size)))
    return image.resize((round(image.width * factor), round(image.height * factor)))


def _add_noise(image: "Image", draw: random.Random) -> "Image":
    import numpy as np
    from PIL import Image

    noise = np.random.default_rng(draw.getrandbits(32)).standard_normal((image.height, image.width, 3), np.float32)
    return Image.fromarray(np.clip(np.asarray(image) + noise * draw.uniform(15, 35), 0, 255).astype(np.uint8))


def _compress(image: "Image", draw: random.Random) -> "Image":
    from PIL import Image

    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=draw.randint(5, 15))
    return Image.open(stream).convert("RGB")


def _rotate(image: "Image", draw: random.Random) -> "Image":
    from PIL.Image import Resampling

    from drag_ray.corpus.picture import fit_picture

    degrees = draw.choice((-1, 1)) * draw.uniform(2, 8)
    turned = image.rotate(degrees, Resampling.BICUBIC, expand=True, fillcolor="white")
    return fit_picture(turned, max(image.width * image.height, _MIN_EDGE**2))


DEGRADATIONS: "dict[str, Callable[[Image, random.Random], Image]]" = {
    "blur": _blur,
    "downscale": _downscale,
    "noise": _add_noise,
    "jpeg": _compress,
    "rotate": _rotate,
}
"""The kinds by name: a blur of 1.5 to 3 pixels, a fifth to two fifths of the resolution, noise of 15 to 35 of 255 levels, a JPEG
of quality 5 to 15, and a turn by 2 to 8 degrees."""

if TYPE_CHECKING:
    DegradationName = str
else:
    DegradationName = Literal[tuple(DEGRADATIONS)]


class DegradationConfig(BaseConfig):
    """Degradation of pictures of pages and questions before the policy sees them: share and kinds."""

    share: float = Field(default=0.0, ge=0, le=1)
    """share of the pictures; the picture alone determines which ones, how and how much. Tools work on the degraded picture"""
    kinds: tuple[DegradationName, ...] = Field(default=tuple(DEGRADATIONS), min_length=1)
    """kinds to draw from: blur, downscale (fewer pixels), noise, jpeg (strong compression), rotate (slightly)"""

    def describe(self) -> str:
        """The degradation in words; empty without any."""
        return f"{100 * self.share:g} % made worse ({', '.join(self.kinds)})" if self.share else ""


def degrade(image: "Image", key: str, config: DegradationConfig) -> "Image | None":
    """The picture in RGB and made worse, with no more pixels than it had, unless it is tiny; None for one that stays as it is."""
    draw = random.Random(f"0:{key}")
    if draw.random() >= config.share:
        return None
    return DEGRADATIONS[draw.choice(config.kinds)](image.convert("RGB"), draw)
