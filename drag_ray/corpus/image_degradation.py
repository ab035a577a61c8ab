"""Pictures made worse on purpose, so that a policy learns to restore what it cannot read.

OpenSearch-VL degrades a tenth of its images at random and pairs each kind with the tool that restores it
(https://github.com/shawn0728/OpenSearch-VL). The same picture, kind and seed give the same pixels.
"""

import io
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drag_ray.corpus.questions import hash_text

if TYPE_CHECKING:
    from PIL.Image import Image

SHARE = 0.1
"""of the images that are degraded"""


@dataclass(frozen=True)
class Degradation:
    """A way to make a picture worse, and the tool that makes it better again."""

    apply: "Callable[[Image, random.Random], Image]"
    restored_by: str


def _blur(image: "Image", draw: random.Random) -> "Image":
    from PIL import ImageFilter

    return image.filter(ImageFilter.GaussianBlur(draw.uniform(1.5, 3.0)))


def _downscale(image: "Image", draw: random.Random) -> "Image":
    factor = draw.uniform(0.2, 0.4)
    return image.resize((max(1, round(image.width * factor)), max(1, round(image.height * factor))))


def _add_noise(image: "Image", draw: random.Random) -> "Image":
    import numpy as np
    from PIL import Image

    noise = np.random.default_rng(draw.getrandbits(32)).normal(0, draw.uniform(15, 35), (image.height, image.width, 3))
    return Image.fromarray(np.clip(np.asarray(image, dtype=np.float64) + noise, 0, 255).astype(np.uint8))


def _compress(image: "Image", draw: random.Random) -> "Image":
    from PIL import Image

    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=draw.randint(5, 15))
    return Image.open(stream).convert("RGB")


DEGRADATIONS = {
    "blur": Degradation(_blur, "sharpen"),
    "downscale": Degradation(_downscale, "super_resolution"),
    "noise": Degradation(_add_noise, "super_resolution"),
    "jpeg": Degradation(_compress, "super_resolution"),
}
"""The kinds by name."""


def degrade(image: "Image", kind: str, seed: int) -> "Image":
    """The picture in RGB, made worse.

    Args:
        image: any picture.
        kind: one of `DEGRADATIONS`.
        seed: of how much.
    """
    return DEGRADATIONS[kind].apply(image.convert("RGB"), random.Random(f"{kind}:{seed}"))


def choose_degradations(ids: Sequence[str], seed: int, share: float = SHARE) -> dict[str, str]:
    """The restoration subset: which of these are degraded, and how. Each is drawn by itself, whatever the others are."""
    chosen = [name for name in ids if int(hash_text(name, seed)[:12], 16) < share * 16**12]
    kinds = list(DEGRADATIONS)
    return {name: kinds[int(hash_text(f"kind of {name}", seed)[:8], 16) % len(kinds)] for name in chosen}
